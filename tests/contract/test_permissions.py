"""The code makes the calls that the account of its service is allowed, and no account is allowed more.

Each method of the store port runs on the Firestore emulator, and each of its calls is noted. Terraform's roles are
held to the same table (tests/infra/rules_permissions.py).
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain.counters import WHOLE, Cell, Measure, ProcessCounters
from shared.domain.deadline import Deadline
from shared.domain.delivery.answers import Answer, Step
from shared.domain.delivery.create import create
from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.listings import Listing
from shared.domain.marks import Credential, Marks
from shared.domain.record import Delivery, Kind, ReceiptKind
from shared.pipeline.intake import IntakeStore
from shared.pipeline.ports import Store
from shared.pipeline.registry import Entry, EntryKind, EntryName, EntryWrite, IntakeRegistry, Registry
from shared.stores.firestore.intake import FirestoreIntake
from shared.stores.firestore.store import FirestoreStore
from tests.support.blocking import Blocking
from tests.support.firestore_backend import DATABASE, fresh_project, shared_emulator
from tests.support.permissions import CALLS, DELETE, METHODS, STORE, calls_of
from tests.support.receipts import note_receipt
from tests.support.rest_middleman import Middleman

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits()
OK = Answer(200, "ok")
NOTED = ReceiptBlock(131031, NOW)
COUNTERS = ProcessCounters("p1", NOW, {Cell(1, WHOLE, Measure.SENT): 1})
ENTRY = EntryName(EntryKind.TENANT, "acme")


@dataclass
class Noted:
    """A Google client, and the calls that are made of it."""

    client: Any
    calls: set[str]

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(request: Mapping[str, Any], **options: Any) -> Any:
            self.calls.update(calls_of(method, request))
            return getattr(self.client, method)(request=request, **options)

        return call


@dataclass
class Scene:
    """A store and an intake of one database with some records in it, and what has been asked of Google since."""

    store: FirestoreStore
    intake: Blocking
    middleman: Middleman
    calls: set[str] = field(default_factory=set)

    def calls_of_the_intake(self) -> set[str]:
        return {name for call in self.middleman.calls for name in calls_of(REST[call.method], as_grpc(call.json))}


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    emulator, _ = shared_emulator()
    project = fresh_project()
    store = FirestoreStore(project, DATABASE, emulator=emulator.address)
    store.create(a_record("a"))
    with Middleman(emulator.address) as middleman:
        intake = Blocking(FirestoreIntake(project, DATABASE, LIMITS, lambda: NOW, emulator=middleman.address))
        note_receipt(intake, echo("a"), a_receipt(ReceiptKind.FAILED, "wamid.a"))
        middleman.calls.clear()
        scene, connect = Scene(store, intake, middleman), store._rpc._client.get
        monkeypatch.setattr(store._rpc._client, "get", lambda: Noted(connect(), scene.calls))
        yield scene
        intake.close()
    store.close()


def key(letter: str) -> str:
    return letter * 40


def a_record(letter: str) -> Delivery:
    made = create(
        Kind.OUTBOUND,
        key(letter),
        provider="meta",
        tenant="default",
        sender="100000000000001",
        contact="15550002222",
        correlation_id="corr_0001",
        payload={"type": "text"},
        limits=LIMITS,
        now=NOW,
    )
    return replace(made, provider_id=f"wamid.{letter}")


def a_receipt(kind: ReceiptKind = ReceiptKind.DELIVERED, provider_id: str = "wamid.x") -> ReceiptReceived:
    return ReceiptReceived(
        provider="meta", sender="100000000000001", provider_id=provider_id, kind=kind, at=NOW, code=None
    )


def later(record: Delivery | None) -> Delivery:
    assert record is not None
    return replace(record, due_at=NOW + timedelta(hours=1))


def deadline() -> Deadline:
    over = time.monotonic() + 60
    return Deadline(time.monotonic, over, over)


def echo(letter: str) -> Echo:
    return Echo(key(letter), 0, "corr_0001")


def change_one(store: FirestoreStore) -> None:
    """With a record beside it, of one that is there, of one that is not, and of one that was read before."""
    step = store.change(key("a"), lambda found: Step(OK, write=later(found), create=(a_record("c"),)))
    store.change(key("d"), lambda _: Step(OK, write=a_record("d")))
    store.change(key("a"), lambda found: Step(OK, write=replace(later(found), attempt=1)), seen=a_record("a"))
    assert step.write is not None


def mark_one(store: FirestoreStore) -> None:
    store.change_marks(key("e"), lambda marks: replace(marks, credential=Credential("f1", NOW)))
    store.change_marks(key("e"), lambda marks: replace(marks, credential=Credential("f2", NOW)), seen=Marks())


def write_entry(store: FirestoreStore) -> Entry | None:
    """Create or change it."""
    (found,) = store.entries([ENTRY])
    assert store.commit_entries([EntryWrite(ENTRY, "acme", {}, found and found.version)])
    return store.entries([ENTRY])[0]


SCENES: Mapping[str, Callable[[FirestoreStore], Any]] = {
    "create": lambda it: [it.create(a_record(letter)) for letter in "ab"],
    "get": lambda it: it.get(key("a")),
    "change": change_one,
    "in_turn": lambda it: it.in_turn("a/0", "a/1"),
    "conversation_entries": lambda it: it.conversation_entries([key("a")]),
    "conversations": lambda it: it.conversations("default", None, 10),
    "of_conversation": lambda it: it.of_conversation(key("a"), None, 10),
    "overdue": lambda it: it.overdue(NOW + timedelta(days=1), 10),
    "backlog": lambda it: it.backlog(),
    "load": lambda it: [it.load(tenant, NOW) for tenant in (None, "default")],
    "keep_counters": lambda it: it.keep_counters(COUNTERS),
    "recent_counters": lambda it: it.recent_counters(NOW),
    "listed": lambda it: [it.listed(listing, None, None, 10) for listing in Listing],
    "history": lambda it: it.history("default", NOW, NOW, (NOW.isoformat(timespec="microseconds"), key("a")), 10),
    "purge": lambda it: it.purge(NOW + timedelta(days=365), 10),
    "by_correlation": lambda it: it.by_correlation("corr_0001"),
    "by_provider_id": lambda it: it.by_provider_id("meta", "wamid.a"),
    "ids_with_prefix": lambda it: it.ids_with_prefix("aaaaaaaa", 10),
    "marks": lambda it: it.marks(key("e")),
    "change_marks": mark_one,
    "troubled": lambda it: [it.troubled(after, 10) for after in (None, key("a"))],
    "ping": lambda it: it.ping(),
    "time": lambda it: it.time(),
}
"""Each method of the store's port, in each way that leads to other calls."""

REGISTRY_SCENES: Mapping[str, Callable[[FirestoreStore], Any]] = {
    "entries": lambda it: it.entries([ENTRY]),
    "entry_page": lambda it: [it.entry_page(ENTRY.kind, tenant, None, 10) for tenant in (None, "acme")],
    "commit_entries": lambda it: [write_entry(it) for _ in range(2)],
}
"""The same for the registry's port, without deletions, which no service makes."""

INTAKE_SCENES: Mapping[str, Callable[[Blocking], Any]] = {
    "create_all": lambda it: it.create_all([a_record(letter) for letter in "abc"], deadline()),
    "note_receipts": lambda it: it.note_receipts(
        [(echo("a"), a_receipt()), (echo("z"), a_receipt()), (None, a_receipt(ReceiptKind.FAILED))], deadline()
    ),
    "note_receipt_block": lambda it: it.note_receipt_block(key("e"), NOTED),
    "keep_counters": lambda it: it.keep_counters(COUNTERS),
    "entries": lambda it: it.entries([ENTRY], deadline()),
    "ping": lambda it: it.ping(),
}
"""The same for the intake's ports."""

REST = {"batchGet": "batch_get_documents", "batchWrite": "batch_write", "commit": "commit"}
"""The REST methods by their names in gRPC."""


def as_grpc(request: Mapping[str, Any]) -> dict[str, Any]:
    """What `calls_of` reads of a request, from its JSON."""
    writes = request.get("writes", ())
    return {
        "transaction": request.get("transaction"),
        "writes": [{**write, "current_document": write.get("currentDocument", {})} for write in writes],
    }


def methods_of(port: type) -> set[str]:
    """`close` asks Google for nothing."""
    return {name for name in vars(port) if not name.startswith("_")} - {"close"}


def test_every_store_method_is_tested() -> None:
    assert methods_of(Store) == set(SCENES)
    assert methods_of(Registry) == set(REGISTRY_SCENES)
    assert methods_of(IntakeStore) | methods_of(IntakeRegistry) == set(INTAKE_SCENES)


def test_internal_services_account_makes_exactly_its_allowed_calls(scene: Scene) -> None:
    for call in (SCENES | REGISTRY_SCENES).values():
        call(scene.store)
    assert frozenset().union(*(CALLS[call] for call in scene.calls)) == STORE["internal"] == STORE["api"] - {DELETE}


def test_webhooks_account_makes_exactly_its_allowed_calls_and_lists_nothing(scene: Scene) -> None:
    for call in INTAKE_SCENES.values():
        call(scene.intake)
    made = scene.calls_of_the_intake()
    assert frozenset().union(*(CALLS[call] for call in made)) == STORE["webhook"]
    assert {call.partition(":")[0] for call in made} == {"batch_get_documents", "batch_write", "commit"}


def test_only_deletion_of_an_entry_needs_the_permission_that_only_the_api_has(scene: Scene) -> None:
    found = write_entry(scene.store)
    assert found is not None
    scene.calls.clear()
    assert scene.store.commit_entries([EntryWrite(ENTRY, "acme", None, found.version)])
    assert frozenset().union(*(CALLS[call] for call in scene.calls)) == {DELETE}
    assert {service for service, allowed in STORE.items() if DELETE in allowed} == {"api"}


def test_api_service_deletes_no_secret_and_adds_none_of_a_handler() -> None:
    """Its account may do neither (decision 88): both are the command line's."""
    removing = r"\b(secrets\.remove|HANDLER_PREFIX)\b"
    files = [*(ROOT / "services" / "api").rglob("*.py"), ROOT / "shared" / "bootstrap" / "api.py"]
    assert [path.name for path in files if re.search(removing, path.read_text())] == []


def test_the_code_makes_no_call_that_the_table_does_not_know() -> None:
    """In the text: also those that no test happens to make."""
    adapters = ("stores/firestore/connection.py", "queues/cloud_tasks.py")
    made = {name for it in adapters for name in re.findall(r"\bclient\.(\w+)\(", (ROOT / "shared" / it).read_text())}
    rest = (ROOT / "shared/stores/firestore/rest.py").read_text()
    made |= {REST[name] for name in re.findall(r'"(batch\w+|commit)"', rest)}
    assert made - {"call", "patience", "close", "get"} == METHODS
    others = [
        str(path.relative_to(ROOT))
        for folder in ("shared", "services")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"google\.cloud\.(firestore|tasks)", path.read_text()) and not str(path).endswith(adapters)
    ]
    assert others == [], "a client of Google's beside the two adapters"


@pytest.mark.parametrize(
    "request_",
    [
        {"writes": [{"delete": "records/a"}]},
        {"writes": [{"update": {}}], "transaction": b"1"},
        {"writes": [{"verify": "records/a"}]},
    ],
)
def test_deletion_of_a_record_is_not_in_the_table_of_calls(request_: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match="deletes"):
        list(calls_of("commit", request_))
