"""The Firestore emulator of the contract suite: one for all tests, on a free port, with an empty project for each."""

import atexit
import itertools
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import click
import grpc
from google.cloud.firestore_v1 import types
from google.cloud.firestore_v1.services.firestore import FirestoreClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

from local.faulty_proxy import FaultyProxy
from local.stores.firestore_emulator import FIRESTORE_EMULATOR
from shared.domain.limits import Limits
from shared.pipeline.registry import EntryName
from shared.stores.firestore.entries import entry_name
from shared.stores.firestore.intake import FirestoreIntake
from shared.stores.firestore.schema import COLLECTIONS
from shared.stores.firestore.store import FirestoreStore
from tests.support.backends import Backend
from tests.support.machine import missing
from tests.support.real_servers import free_port, frozen, until

DATABASE = "(default)"
_projects = (f"pombo-test-{number}" for number in itertools.count(1))


@dataclass
class Emulator:
    """The emulator as a process, on one port."""

    port: int = 0
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.port = self.port or free_port()
        self.process = subprocess.Popen(
            _command(self.port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        until(self._answers, 100)

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def frozen(self) -> AbstractContextManager[None]:
        assert self.process
        return frozen(self.process.pid)

    def _answers(self) -> bool:
        assert self.process
        assert self.process.poll() is None, "the emulator ended by itself"
        return FIRESTORE_EMULATOR.answers(self.address)


@dataclass
class Raw:
    """A client of one project that goes straight to the emulator, without Pombo's code."""

    client: FirestoreClient
    database: str

    def documents(self, collection: str) -> list[types.Document]:
        return list(self.client.list_documents(request={"parent": self._root, "collection_id": collection}))

    def get(self, name: str) -> types.Document:
        return self.client.get_document(request={"name": f"{self._root}/{name}"})

    def put(self, name: str, fields: dict[str, Any]) -> None:
        """Write these fields, and keep the others."""
        document = types.Document(name=f"{self._root}/{name}", fields=fields)
        self.client.update_document(document=document, update_mask={"field_paths": list(fields)})

    def delete(self, document: types.Document) -> None:
        self.client.delete_document(name=document.name)

    @property
    def _root(self) -> str:
        return f"{self.database}/documents"


@contextmanager
def raw(emulator: Emulator, project: str) -> Iterator[Raw]:
    with grpc.insecure_channel(emulator.address) as channel:
        client = FirestoreClient(transport=FirestoreGrpcTransport(channel=channel))
        yield Raw(client, f"projects/{project}/databases/{DATABASE}")


def backend(tmp_path: Path) -> Backend:
    emulator, proxy = shared_emulator()
    project = fresh_project()

    def expire(store: FirestoreStore, then: datetime) -> None:
        """Act as a TTL policy, which the emulator does not have."""
        with raw(emulator, project) as database:
            for collection in COLLECTIONS:
                for document in database.documents(collection.name):
                    if collection.ttl in document.fields and document.fields[collection.ttl].timestamp_value <= then:
                        database.delete(document)

    def spoil(name: EntryName, text: str) -> None:
        with raw(emulator, project) as database:
            database.put(entry_name(name), {"fields": {"string_value": text}})

    return Backend(
        lambda _: FirestoreStore(project, DATABASE, emulator=proxy.address),
        proxy.silent,
        expire,
        spoil,
        intake=lambda _, clock: FirestoreIntake(project, DATABASE, Limits(), clock, emulator=proxy.address),
        counts_unechoed=False,
        proxy=proxy,
    )


def fresh_project() -> str:
    """The name of an empty project."""
    return next(_projects)


@cache
def shared_emulator() -> tuple[Emulator, FaultyProxy]:
    """The emulator of this process, and a proxy in front of it."""
    emulator = Emulator()
    emulator.start()
    _warm(emulator)
    proxy = FaultyProxy("127.0.0.1", emulator.port)
    atexit.register(lambda: (proxy.close(), emulator.stop()))
    return emulator, proxy


def _warm(emulator: Emulator) -> None:
    """Warm it up: a new Java process needs seconds for what later takes milliseconds, and slows the first tests."""
    with raw(emulator, fresh_project()) as database, ThreadPoolExecutor(64) as threads:
        for _ in range(5):
            put = [threads.submit(database.put, f"records/{n}", {"number": {"integer_value": n}}) for n in range(64)]
            for each in put:
                each.result()


def _command(port: int) -> list[str]:
    try:
        return FIRESTORE_EMULATOR.command(port, Path())
    except click.ClickException as error:
        missing(error.message)
