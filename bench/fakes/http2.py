"""HTTP/2 for a fake service, in the part that gRPC uses: https://www.rfc-editor.org/rfc/rfc9113.

Python's gRPC server takes a quarter of a millisecond for a call, several times what the fastest server under test
needs. A client sends the same block of headers again and again, so its decoded form is kept.
"""

import asyncio
from dataclasses import dataclass, field

from hpack import Decoder
from hpack.table import HeaderTable

from bench.fakes.calls import HTTP_STATUS, OK, UNIMPLEMENTED, Counts, Service
from bench.fakes.http1 import count

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, PADDED, PRIORITY, ACK = 0x1, 0x4, 0x8, 0x20, 0x1
WINDOW = 1 << 30
FRAME_BYTES = 1 << 20
"""The largest frame that this side takes."""
SENT_FRAME_BYTES = 16_384
"""The largest frame that every client takes."""
INITIAL_WINDOW = 65_535
KEPT_BLOCKS = 4096

_SETTINGS = b"\x00\x04" + WINDOW.to_bytes(4, "big") + b"\x00\x05" + FRAME_BYTES.to_bytes(4, "big")
_CONTENT_TYPE = b"\x0f\x10\x10application/grpc"
_GRPC_HEADERS = b"\x88" + _CONTENT_TYPE
_TRAILERS = {code: b"\x00\x0bgrpc-status" + b"%c%d" % (len(str(code)), code) for code in range(17)}


class _Table(HeaderTable):
    """Says whether a block changed it: such a block means something else when it comes again."""

    changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(name, value)


@dataclass(slots=True)
class _Stream:
    method: str
    path: str
    is_grpc: bool
    body: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class _Unsent:
    """The rest of an answer that is larger than the client takes at once."""

    body: bytes
    trailers: bytes
    window: int


class Http2:
    """One connection."""

    def __init__(self, service: Service, counts: Counts, transport: asyncio.Transport) -> None:
        self._service = service
        self._counts = counts
        self._transport = transport
        self._table = _Table()
        self._decoder = Decoder()
        self._decoder.header_table = self._table
        self._blocks: dict[bytes, tuple[str, str, bool]] = {}
        self._streams: dict[int, _Stream] = {}
        self._buffer = b""
        self._has_preface = False
        self._received = 0
        self._window = self._stream_window = INITIAL_WINDOW
        self._unsent: dict[int, _Unsent] = {}
        self._out: list[bytes] = []
        transport.write(_frame(SETTINGS, 0, 0, _SETTINGS) + _frame(WINDOW_UPDATE, 0, 0, WINDOW.to_bytes(4, "big")))

    def feed(self, data: bytes) -> None:
        """Take every complete frame, and answer all of them in one write."""
        buffer = self._buffer + data if self._buffer else data
        at, end = 0, len(buffer)
        if not self._has_preface:
            if end < len(PREFACE):
                self._buffer = buffer
                return
            at, self._has_preface = len(PREFACE), True
        while end - at >= 9:
            size = int.from_bytes(buffer[at : at + 3], "big")
            if end - at < 9 + size:
                break
            kind, flags = buffer[at + 3], buffer[at + 4]
            stream = int.from_bytes(buffer[at + 5 : at + 9], "big")
            self._take(kind, flags, stream, buffer[at + 9 : at + 9 + size])
            at += 9 + size
        self._buffer = buffer[at:]
        if self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA:
            self._received += len(payload)
            if self._received > WINDOW // 2:
                self._out.append(_frame(WINDOW_UPDATE, 0, 0, self._received.to_bytes(4, "big")))
                self._received = 0
            if stream in self._streams:
                self._streams[stream].body += payload[1 : -payload[0]] if flags & PADDED else payload
        elif kind == HEADERS:
            if not flags & END_HEADERS:
                self._transport.close()  # no client of ours sends so many headers
                return
            self._streams[stream] = _Stream(*self._headers(flags, payload))
        elif kind == SETTINGS and not flags & ACK:
            settings = (payload[at : at + 6] for at in range(0, len(payload), 6))
            for setting in settings:
                if setting[:2] == b"\x00\x04":
                    self._stream_window = int.from_bytes(setting[2:], "big")
            self._out.append(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self._out.append(_frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            if stream == 0:
                self._window += int.from_bytes(payload, "big")
            elif stream in self._unsent:
                self._unsent[stream].window += int.from_bytes(payload, "big")
            for waiting in list(self._unsent):
                self._send_part(waiting)
        elif kind == RESET:
            self._streams.pop(stream, None)
            self._unsent.pop(stream, None)
        if kind in (DATA, HEADERS) and flags & END_STREAM and stream in self._streams:
            self._answer(stream, self._streams.pop(stream))

    def _headers(self, flags: int, payload: bytes) -> tuple[str, str, bool]:
        block = payload
        if flags & PADDED:
            block = block[1 : -payload[0]]
        if flags & PRIORITY:
            block = block[5:]
        known = self._blocks.get(block)
        if known:
            return known
        before = self._table.changes
        headers = dict(self._decoder.decode(block, raw=True))
        is_grpc = headers.get(b"content-type", b"").startswith(b"application/grpc")
        found = (headers[b":method"].decode(), headers[b":path"].decode(), is_grpc)
        if self._table.changes != before or len(self._blocks) >= KEPT_BLOCKS:
            self._blocks.clear()
        if self._table.changes == before:
            self._blocks[block] = found
        return found

    def _answer(self, stream: int, request: _Stream) -> None:
        if not request.is_grpc:
            code, answer = self._service.rest(request.method, request.path, bytes(request.body))
            count(self._counts, request.method, request.path, code)
            self._out.append(_frame(HEADERS, END_HEADERS, stream, b"\x08\x03%d" % HTTP_STATUS[code]))
            self._send(stream, answer, _frame(DATA, END_STREAM, stream, b""))
            return
        code, messages = self._service.grpc(request.path, bytes(request.body[5:]))
        if code == UNIMPLEMENTED:
            self._counts.unknown[request.path] += 1
        self._counts.calls[f"gRPC {request.path.rpartition('/')[2]}"] += 1
        if code:
            trailers = _frame(HEADERS, END_HEADERS | END_STREAM, stream, _GRPC_HEADERS + _TRAILERS[code])
            self._out.append(trailers)
            return
        self._out.append(_frame(HEADERS, END_HEADERS, stream, _GRPC_HEADERS))
        body = b"".join(b"\x00%b%b" % (len(message).to_bytes(4, "big"), message) for message in messages)
        self._send(stream, body, _frame(HEADERS, END_HEADERS | END_STREAM, stream, _TRAILERS[OK]))

    def _send(self, stream: int, body: bytes, trailers: bytes) -> None:
        if len(body) <= min(self._window, self._stream_window, SENT_FRAME_BYTES):
            self._window -= len(body)
            self._out += (_frame(DATA, 0, stream, body), trailers)
            return
        self._unsent[stream] = _Unsent(body, trailers, self._stream_window)
        self._send_part(stream)

    def _send_part(self, stream: int) -> None:
        """As much of an answer as the client takes now."""
        unsent = self._unsent[stream]
        while unsent.body and (size := min(len(unsent.body), self._window, unsent.window, SENT_FRAME_BYTES)) > 0:
            self._out.append(_frame(DATA, 0, stream, unsent.body[:size]))
            unsent.body = unsent.body[size:]
            unsent.window -= size
            self._window -= size
        if not unsent.body:
            self._out.append(unsent.trailers)
            del self._unsent[stream]


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return b"%b%c%c%b%b" % (len(payload).to_bytes(3, "big"), kind, flags, stream.to_bytes(4, "big"), payload)
