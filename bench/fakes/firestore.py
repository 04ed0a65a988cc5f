"""A fake of Firestore: Commit, BatchWrite, BatchGetDocuments and GetDocument, by gRPC and by REST.

It keeps each document's fields as they were written last and ignores transforms. A document that it has never seen
meets every precondition, so that a receipt may concern a message of before the run; and a read does not find it.
"""

import itertools
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
from google.cloud.firestore_v1.types import firestore as calls
from google.protobuf.json_format import MessageToDict, ParseDict

from bench.fakes.calls import ALREADY_EXISTS, INVALID, NAMES, NOT_FOUND, OK, UNIMPLEMENTED, Counts

CommitRequest: Any = calls.CommitRequest.pb()
BatchWriteRequest: Any = calls.BatchWriteRequest.pb()
BatchGetRequest: Any = calls.BatchGetDocumentsRequest.pb()
BatchGetResponse: Any = calls.BatchGetDocumentsResponse.pb()
GetRequest: Any = calls.GetDocumentRequest.pb()
PREFIX = "/google.firestore.v1.Firestore/"


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a document."""

    name: str
    must_exist: bool | None
    content: Any
    """The document, as a message of gRPC or as JSON; None if it is deleted."""


class Firestore:
    """The service."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._documents: dict[str, Any] = {}
        self._began = int(time.time())
        self._clock = itertools.count(1)

    def reset(self) -> None:
        """Forget every document."""
        self._documents.clear()

    # ---- gRPC

    def grpc(self, path: str, message: bytes) -> tuple[int, list[bytes]]:
        call = path.removeprefix(PREFIX)
        match call:
            case "Commit":
                codes = self._commit([_write(it) for it in CommitRequest.FromString(message).writes])
                refused = next((code for code in codes if code), OK)
                time = self._timestamp()
                result = b"\x0a" + _sized(b"\x0a" + _sized(time))  # write_results { update_time }
                return refused, [] if refused else [result * len(codes) + b"\x12" + _sized(time)]  # commit_time
            case "BatchWrite":
                codes = [self._write(_write(it)) for it in BatchWriteRequest.FromString(message).writes]
                result = b"\x0a" + _sized(b"\x0a" + _sized(self._timestamp()))
                statuses = (b"\x12\x02\x08%c" % code if code else b"\x12\x00" for code in codes)
                return OK, [result * len(codes) + b"".join(statuses)]
            case "BatchGetDocuments":
                return OK, [self._found(name) for name in BatchGetRequest.FromString(message).documents]
            case "GetDocument":
                document = self._documents.get(GetRequest.FromString(message).name)
                self._counts.calls["read"] += 1
                return (OK, [self._message(document).SerializeToString()]) if document else (NOT_FOUND, [])
        return UNIMPLEMENTED, []

    def _found(self, name: str) -> bytes:
        self._counts.calls["read"] += 1
        document = self._documents.get(name)
        response = BatchGetResponse(found=self._message(document)) if document else BatchGetResponse(missing=name)
        response.read_time.seconds = self._began
        result: bytes = response.SerializeToString()
        return result

    def _message(self, document: Any) -> Any:
        """A document as a message, with the times that every stored document has."""
        message = type(BatchGetResponse().found)()
        if isinstance(document, dict):
            ParseDict({key: document[key] for key in ("name", "fields") if key in document}, message)
        else:
            message.CopyFrom(document)
        message.create_time.seconds = message.update_time.seconds = self._began
        return message

    # ---- REST

    def rest(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        path = unquote(path.partition("?")[0])
        documents, _, call = path.rpartition(":")
        if method == "GET" and "/documents/" in path:
            self._counts.calls["read"] += 1
            document = self._documents.get(path.removeprefix("/v1/"))
            return (OK, orjson.dumps(self._json(document))) if document else _refused(NOT_FOUND)
        if method != "POST" or not documents.endswith("/documents"):
            return _refused(UNIMPLEMENTED)
        request = orjson.loads(body)
        now = self._moment()
        match call:
            case "commit":
                codes = self._commit([_json_write(it) for it in request["writes"]])
                refused = next((code for code in codes if code), OK)
                if refused:
                    return _refused(refused)
                return OK, orjson.dumps({"writeResults": [{"updateTime": now}] * len(codes), "commitTime": now})
            case "batchWrite":
                codes = [self._write(_json_write(it)) for it in request["writes"]]
                statuses = [{"code": code} if code else {} for code in codes]
                return OK, orjson.dumps({"writeResults": [{"updateTime": now}] * len(codes), "status": statuses})
            case "batchGet":
                return OK, orjson.dumps([self._found_json(name, now) for name in request["documents"]])
        return _refused(UNIMPLEMENTED)

    def _found_json(self, name: str, now: str) -> dict[str, Any]:
        self._counts.calls["read"] += 1
        document = self._documents.get(name)
        return {"found": self._json(document), "readTime": now} if document else {"missing": name, "readTime": now}

    def _json(self, document: Any) -> dict[str, Any]:
        plain = document if isinstance(document, dict) else MessageToDict(document)
        times = dict.fromkeys(("createTime", "updateTime"), _written(self._began, 0))
        return {"name": plain["name"], "fields": plain.get("fields", {}), **times}

    # ---- writes

    def _commit(self, writes: list[Write]) -> list[int]:
        """All or none."""
        if len(writes) == 1:
            return [self._write(writes[0])]
        codes = [self._refusal(write) for write in writes]
        if any(codes):
            self._counts.refused += 1
            return codes
        return [self._write(write) for write in writes]

    def _write(self, write: Write) -> int:
        refusal = self._refusal(write)
        if refusal:
            self._counts.refused += 1
            return refusal
        if write.must_exist is False:
            self._counts.created += 1
            self._documents[write.name] = write.content
        else:
            self._counts.changed += 1
            if write.name not in self._documents:
                self._documents[write.name] = write.content
        return OK

    def _refusal(self, write: Write) -> int:
        if not write.name:
            return INVALID
        return ALREADY_EXISTS if write.must_exist is False and write.name in self._documents else OK

    # ---- time

    def _timestamp(self) -> bytes:
        return b"\x08" + _varint(self._began) + b"\x10" + _varint(next(self._clock))

    def _moment(self) -> str:
        return _written(self._began, next(self._clock))


def _write(message: Any) -> Write:
    condition = message.current_document if message.HasField("current_document") else None
    must_exist = condition.exists if condition is not None and condition.HasField("exists") else None
    if message.HasField("update"):
        return Write(message.update.name, must_exist, message.update)
    return Write(message.delete or message.transform.document, must_exist, None)


def _json_write(message: dict[str, Any]) -> Write:
    must_exist = message.get("currentDocument", {}).get("exists")
    if "update" in message:
        return Write(message["update"]["name"], must_exist, message["update"])
    return Write(message.get("delete") or message["transform"]["document"], must_exist, None)


def _refused(code: int) -> tuple[int, bytes]:
    return code, orjson.dumps({"error": {"status": NAMES.get(code, "UNIMPLEMENTED"), "message": "refused by the fake"}})


def _written(seconds: int, nanos: int) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanos:09d}Z"


def _sized(message: bytes) -> bytes:
    """With its length before it; the messages here are shorter than 128 bytes."""
    return b"%c%b" % (len(message), message)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
