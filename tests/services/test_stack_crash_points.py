"""A service kills itself at every point at which a crash could matter, in the running stack, with the sweep off."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread

import pytest

import tests.support.crash_scenarios as scenarios
from local.services import SERVICES
from shared import crash
from shared.config import STORES
from tests.support.crash_scenarios import Outcome
from tests.support.crashing import Rig
from tests.support.stack import ROOT, Stack, clean_environment, cli, need_server_of, server_of

pytestmark = [
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="a process's environment is read in /proc, which is Linux's"),
    pytest.mark.timeout(900),  # the first test of a run may wait for others, which are at work at the same time
]

AT_ONCE = {"sqlite": 5, "firestore": 2, "redis": 2}
"""Stacks. Most of a test is waiting until a lease has run out, but Firestore's emulator costs more than that."""

LONGEST = 120.0
"""Seconds. The longest wait that a crash leads to is ten minutes, which are 30 s here; and the machine may be busy."""

SETTINGS = {"HANDLER_TIMEOUT": "40s", "IN_DOUBT_SECONDS": "120", "SWEEP_AFTER": "10s", "MAX_ATTEMPTS": "8"}
"""As short as they may be: a crash is healed when a lease has run out. All of it is divided by twenty."""


@dataclass(frozen=True)
class Passing:
    """Where a method of a port is called: by which service, in what situation, and at which of its calls to crash."""

    method: str
    service: str
    scenario: Callable[[Rig], Outcome]
    calls: tuple[int, ...] = (1,)
    alone: bool = False
    """On a stack of its own: what is left there would hold up what comes after."""
    stores: tuple[str, ...] = STORES


PASSINGS = (
    # the API service
    Passing("registry.entries", "api", scenarios.a_message_of_a_program),
    Passing("tenants.senders_with", "api", scenarios.a_message_from_a_number_named_by_our_id),
    Passing("tenants.sender", "api", scenarios.a_message_of_a_program),
    Passing("tenants.only_sender_of", "api", scenarios.a_message_from_a_tenants_only_number),
    Passing("tenants.tenant", "api", scenarios.a_message_of_a_program),
    Passing("channel.recipient", "api", scenarios.a_message_of_a_program),
    Passing("clock.monotonic", "api", scenarios.a_message_of_a_program),
    Passing("clock.now", "api", scenarios.a_message_of_a_program),
    Passing("clock.token", "api", scenarios.a_message_of_a_program),
    Passing("store.marks", "api", scenarios.a_message_of_a_program),
    Passing("store.conversation_entries", "api", scenarios.a_message_of_a_program),
    Passing("store.create", "api", scenarios.a_message_of_a_program),
    Passing("store.create", "api", scenarios.a_message_that_a_program_sends_twice, (2,)),
    Passing("store.change", "api", scenarios.a_message_that_a_program_cancels),
    Passing("store.get", "api", scenarios.a_message_that_a_program_looks_at),
    Passing("queue.ensure", "api", scenarios.a_message_of_a_program),
    Passing("queue.ensure", "api", scenarios.a_message_that_a_program_sends_twice, (2,)),
    Passing("store.change", "api", scenarios.a_dead_letter_that_a_program_replays),
    Passing("queue.ensure", "api", scenarios.a_dead_letter_that_a_program_replays, (2,)),
    Passing("store.history", "api", scenarios.lists_that_a_program_reads),
    Passing("store.listed", "api", scenarios.lists_that_a_program_reads),
    Passing("registry.entry_page", "api", scenarios.lists_that_a_program_reads),
    Passing("store.load", "api", scenarios.health_that_a_program_reads),
    Passing("store.recent_counters", "api", scenarios.health_that_a_program_reads),
    Passing("store.troubled", "api", scenarios.health_that_a_program_reads),
    Passing("tenants.senders_of_environment", "api", scenarios.health_that_a_program_reads, (2,)),  # one at the start
    Passing("registry.commit_entries", "api", scenarios.a_number_that_a_program_connects),
    Passing("secrets.add", "api", scenarios.a_number_that_a_program_connects),
    Passing("store.time", "api", scenarios.a_number_that_a_program_connects),
    Passing("store.change_marks", "api", scenarios.a_number_that_a_program_connects),
    Passing("queue.ensure_drain", "api", scenarios.a_number_that_a_program_reconnects),
    Passing("store.ping", "api", scenarios.a_question_about_readiness),
    Passing("queue.ping", "api", scenarios.a_question_about_readiness),
    # the webhook service
    Passing("channel.verify", "webhook", scenarios.a_message),
    Passing("channel.parse", "webhook", scenarios.a_message),
    Passing("clock.monotonic", "webhook", scenarios.a_message),
    Passing("clock.now", "webhook", scenarios.a_message),
    Passing("clock.token", "webhook", scenarios.a_message),
    Passing("tenants.owners_of", "webhook", scenarios.a_message),
    Passing("tenants.owners_of", "webhook", scenarios.account_news),
    Passing("tenants.owners_of", "webhook", scenarios.a_failed_receipt_that_blocks),
    Passing("registry.entries", "webhook", scenarios.account_news),
    Passing("registry.entries", "webhook", scenarios.a_message_to_an_unknown_number),
    Passing("store.create_all", "webhook", scenarios.a_message),
    Passing("store.create_all", "webhook", scenarios.a_message_that_comes_twice, (2,)),
    Passing("channel.handshake", "webhook", scenarios.a_handshake),
    Passing("channel.acknowledge", "webhook", scenarios.a_message),
    Passing("store.create_all", "webhook", scenarios.three_messages_in_one_post),
    Passing("store.create_all", "webhook", scenarios.a_message_to_an_unknown_number),
    Passing("store.create_all", "webhook", scenarios.account_news),
    Passing("queue.ensure_all", "webhook", scenarios.a_message),
    Passing("queue.ensure_all", "webhook", scenarios.three_messages_in_one_post),
    Passing("queue.ensure_all", "webhook", scenarios.account_news),
    Passing("queue.queue_of", "webhook", scenarios.a_message),
    Passing("store.note_receipts", "webhook", scenarios.receipts),
    Passing("store.note_receipts", "webhook", scenarios.a_receipt_without_our_echo),
    Passing("store.note_receipts", "webhook", scenarios.receipts_in_one_post),
    Passing("store.note_receipt_block", "webhook", scenarios.a_failed_receipt_that_blocks),
    Passing("store.ping", "webhook", scenarios.a_question_about_readiness),
    Passing("queue.ping", "webhook", scenarios.a_question_about_readiness),
    # the internal service: from the event to the plan
    Passing("clock.monotonic", "internal", scenarios.a_message, (1, 5)),
    Passing("clock.token", "internal", scenarios.a_message, (1, 2)),
    Passing("clock.now", "internal", scenarios.a_message, (1, 4)),
    Passing("clock.jitter", "internal", scenarios.a_message, (1, 2)),
    Passing("channel.changes", "internal", scenarios.account_news),
    Passing("channel.changes", "internal", scenarios.news_that_lifts_a_block),
    Passing("store.change_marks", "internal", scenarios.news_that_lifts_a_block),
    Passing("tenants.senders_of_account", "internal", scenarios.news_that_lifts_a_block),
    Passing("tenants.owner_of", "internal", scenarios.a_stranger_that_is_replayed),
    Passing("tenants.tenant", "internal", scenarios.a_message),
    Passing("tenants.are_several", "internal", scenarios.a_message),
    Passing("registry.entries", "internal", scenarios.a_stranger_that_is_replayed),
    Passing("channel.read", "internal", scenarios.a_message),
    Passing("handler.handles", "internal", scenarios.a_message),
    Passing("handler.call", "internal", scenarios.a_message),
    Passing("channel.address", "internal", scenarios.a_message),
    Passing("store.change", "internal", scenarios.a_message, (1, 2, 3, 4, 5, 6)),
    Passing("store.change", "internal", scenarios.a_handler_that_fails_four_times, (8,)),
    Passing("store.change", "internal", scenarios.account_news, (1, 2)),
    Passing("queue.ensure", "internal", scenarios.a_message, (1, 2)),
    Passing("queue.queue_of", "internal", scenarios.a_message, (1, 2)),
    Passing("queue.ensure", "internal", scenarios.a_handler_that_fails_four_times, (4,)),
    Passing("clock.sleep", "internal", scenarios.a_store_that_is_away_at_the_end, alone=True, stores=("sqlite",)),
    # from the plan to WhatsApp
    Passing("store.get", "internal", scenarios.a_message, (1, 2, 3)),
    Passing("store.in_turn", "internal", scenarios.a_message, (1, 2)),
    Passing("store.in_turn", "internal", scenarios.three_messages_in_one_post, (3,)),
    Passing("store.conversation_entries", "internal", scenarios.a_message),
    Passing("store.change", "internal", scenarios.three_messages_in_one_post, (1, 2)),  # a lease, an entry in a bell
    Passing("store.marks", "internal", scenarios.a_message),
    Passing("tenants.sender", "internal", scenarios.a_message),
    Passing("credentials.of", "internal", scenarios.a_message),
    Passing("channel.fingerprint", "internal", scenarios.a_message),
    Passing("channel.send", "internal", scenarios.a_message, (1, 2)),
    Passing("channel.send", "internal", scenarios.receipts_that_are_late),
    Passing("channel.send", "internal", scenarios.an_answer_that_is_lost),
    Passing("channel.send", "internal", scenarios.a_reply_that_is_refused),
    Passing("store.change", "internal", scenarios.an_answer_that_is_lost, (4, 5)),
    Passing("store.change", "internal", scenarios.a_reply_that_is_refused, (4,)),
    Passing("queue.ensure", "internal", scenarios.an_answer_and_all_receipts_that_are_lost, (2,)),
    Passing("queue.ensure", "internal", scenarios.a_first_reply_that_is_held_up, (3, 4)),
    Passing("store.change_marks", "internal", scenarios.a_refused_credential, (2,), alone=True),
    Passing("store.change_marks", "internal", scenarios.a_number_that_is_blocked, (1, 2), alone=True),
    Passing("store.change_marks", "internal", scenarios.a_block_that_is_over, (1, 2)),
    # another tenant
    Passing("registry.entries", "webhook", scenarios.a_message_to_another_tenant),
    Passing("registry.entries", "internal", scenarios.a_message_to_another_tenant),
    Passing("secrets.newest", "internal", scenarios.a_message_to_another_tenant),
    # a refused credential, and its reconnect
    Passing("credentials.newest", "internal", scenarios.a_refused_credential, alone=True),
    Passing("queue.ensure_drain", "internal", scenarios.a_credential_that_was_replaced),
    Passing("tenants.senders_with", "internal", scenarios.a_credential_that_was_replaced),
    Passing("store.listed", "internal", scenarios.a_credential_that_was_replaced),
    # while WhatsApp is away, and when it is back
    Passing("store.change_marks", "internal", scenarios.a_provider_that_refuses_for_a_while, (1, 2, 3)),
    Passing("channel.probe", "internal", scenarios.a_provider_that_refuses_for_a_while),
    Passing("channel.send", "internal", scenarios.a_provider_that_refuses_for_a_while, (1, 2)),
    Passing("channel.probe", "internal", scenarios.a_message_that_probes_before_it_is_resent),
    Passing("store.change_marks", "internal", scenarios.a_failed_receipt_that_blocks, (1, 2)),
    # beside the road
    Passing("store.overdue", "internal", scenarios.a_sweep),
    Passing("store.change", "internal", scenarios.a_sweep),
    Passing("queue.ensure", "internal", scenarios.a_sweep),
    Passing("store.purge", "internal", scenarios.a_sweep),
    Passing("store.troubled", "internal", scenarios.a_sweep),
    Passing("store.backlog", "internal", scenarios.a_sweep),
    Passing("tenants.senders_of_environment", "internal", scenarios.a_sweep),
    Passing("store.keep_counters", "webhook", scenarios.counters_that_are_written),
    Passing("store.keep_counters", "internal", scenarios.counters_that_are_written),
    Passing("store.ping", "internal", scenarios.a_question_about_readiness),
    Passing("queue.ping", "internal", scenarios.a_question_about_readiness),
)

NO_SERVICE_CALLS = {
    "channel.explain",
    "channel.remark",
    "secrets.remove",
    "store.by_correlation",
    "store.by_provider_id",
    "store.conversations",
    "store.ids_with_prefix",
    "store.of_conversation",
}
"""The command line reads and writes with them; another test checks that no service calls them."""

WRITING = {"store.create_all", "store.change", "queue.ensure_all", "queue.ensure", "handler.call", "channel.send"}
"""The effects on the way of a message. After each of them is a gap between two writes, and no gap is without one."""


CHANGING = WRITING | {
    "channel.probe",
    "queue.ensure_drain",
    "store.change_marks",
    "store.create",
    "store.note_receipt_block",
    "store.note_receipts",
    "store.purge",
}
"""The calls that have an effect on messages. After any other call they are as they were before it."""


@dataclass(frozen=True)
class Case:
    """One crash."""

    store: str
    passing: Passing
    moment: str
    call: int

    @property
    def crash_at(self) -> str:
        return f"{self.moment}:{self.passing.method}:{self.call}"

    @property
    def needs_empty_caches(self) -> bool:
        """Whether the point is passed only by a process that has not read the registry and the secrets yet."""
        return self.passing.method.partition(".")[0] in ("registry", "secrets", "credentials")

    @property
    def is_in_a_gap(self) -> bool:
        passing = self.passing
        return passing.scenario is scenarios.a_message and passing.method in WRITING and self.moment == "after"

    def __str__(self) -> str:
        situation = self.passing.scenario.__name__.replace("_", " ")
        return f"{self.store}, {self.passing.service} {self.crash_at}, {situation}"


CASES = [
    Case(store, passing, moment, call)
    for store in STORES
    for passing in PASSINGS
    for moment in crash.MOMENTS
    for call in passing.calls
    if store in passing.stores
]
"""CI runs, on SQLite, the points after every effect, at the first call in each situation and in every gap between two
writes; of the plain message also the points before. The other points lie in the same gaps, so they, the further calls
and the other stores are slow.
"""


class Crew:
    """Runs the cases that were asked for, several at once, and keeps what became of each."""

    def __init__(
        self, cases: list[Case], make_stack: Callable[..., Stack], make_directory: Callable[[str], Path]
    ) -> None:
        self._make_stack, self._make_directory = make_stack, make_directory
        self._lock = Lock()
        self._left = sorted(cases, key=lambda case: not case.passing.alone)  # the longest first
        self.outcomes: dict[Case, Future[None]] = {case: Future() for case in cases}
        self._workers = [
            Thread(target=self._work, args=(store,), name=f"crash-{store}")
            for store in sorted({case.store for case in cases})
            for _ in range(AT_ONCE[store])
        ]
        for worker in self._workers:
            worker.start()

    def _work(self, store: str) -> None:
        """One case after the other; each with the next in view, on the same stack."""
        rig: Rig | None = None
        case = self._take(store)
        while case is not None:
            following = self._take(store, like=case)
            try:
                if case.passing.alone:
                    self._run_alone(case)
                else:
                    rig = rig or self._rig(store)
                    survive(rig, case, following)
            except BaseException as error:
                if rig is not None and not case.passing.alone:
                    rig.close(failed=True)
                    rig = None
                self.outcomes[case].set_exception(error)
            else:
                self.outcomes[case].set_result(None)
            case = following
        if rig is not None:
            rig.close()

    def _take(self, store: str, like: Case | None = None) -> Case | None:
        """A case that is left, if there is one of the same service."""
        with self._lock:
            left = [case for case in self._left if case.store == store]
            alike = [case for case in left if like and case.passing.service == like.passing.service]
            taken = next(iter(alike or left), None)
            if taken is not None:
                self._left.remove(taken)
            return taken

    def _run_alone(self, case: Case) -> None:
        """A stack of one's own may be restarted, and so has a store's server that stays up: one keeps all in memory."""
        with server_of(case.store, self._directory()) as server:
            rig = self._rig(case.store, **server)
            try:
                survive(rig, case)
            except BaseException:
                rig.close(failed=True)
                raise
            rig.close()

    def _rig(self, store: str, **server: str) -> Rig:
        with self._lock:
            stack = self._make_stack("--no-restart", store=store, **SETTINGS, **server)
        return Rig(stack)

    def _directory(self) -> Path:
        with self._lock:
            return self._make_directory("server")

    def close(self) -> None:
        with self._lock:
            self._left.clear()
        for worker in self._workers:
            worker.join()


def survive(rig: Rig, case: Case, following: Case | None = None) -> None:
    """Let it crash, and wait until all is well from outside: everything final, each reply sent once and in order."""
    rig.arm(case.passing.service, case.crash_at, _prepared_for(following, case), case.needs_empty_caches)
    all_is_well = case.passing.scenario(rig)
    rig.wait_until(lambda: all_is_well() and rig.has_crashed(), f"{case}: it has crashed, and all is well", LONGEST)
    rig.wait_until(rig.is_quiet, f"{case}: nothing is under way", LONGEST)
    assert all_is_well(), f"{case}: more came of it"
    rig.check_crash()


def _prepared_for(following: Case | None, case: Case) -> str | None:
    """The next crash that the service is started again for, if it is one of the same service on the same stack."""
    is_next = following and not following.passing.alone and following.passing.service == case.passing.service
    return following.crash_at if following and is_next else None


@pytest.fixture(scope="module")
def crew(
    request: pytest.FixtureRequest, make_stack: Callable[..., Stack], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crew]:
    """At work on all cases of this run from the first that is asked for."""
    asked = [item.callspec.params["case"] for item in request.session.items if "case" in _params(item)]
    crew = Crew([case for case in asked if isinstance(case, Case)], make_stack, tmp_path_factory.mktemp)
    yield crew
    crew.close()


def _params(item: pytest.Item) -> Mapping[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def in_ci(case: Case) -> bool:
    is_first_effect = case.passing.method in CHANGING and case.call == case.passing.calls[0]
    ends_a_gap = case.moment == "before" and case.passing.scenario is not scenarios.a_message
    return case.store == "sqlite" and (is_first_effect or case.is_in_a_gap) and not ends_a_gap


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if in_ci(case) else pytest.mark.slow, id=str(case)) for case in CASES]
)
def test_a_crash_loses_nothing_and_doubles_nothing(crew: Crew, case: Case) -> None:
    need_server_of(case.store)
    crew.outcomes[case].result()


# ---- the variable as a person sets it


def test_service_crashes_once_at_the_crash_at_of_pombo_up(make_stack: Callable[..., Stack], contact: str) -> None:
    with make_stack(CRASH_AT="after:store.change:2") as stack:
        before = stack.pids()

        message_id = stack.say(contact, "!list 2")

        stack.wait_until(lambda: stack.pids()["internal"] != before["internal"], "the internal service died")
        stack.wait_quiet(contact, ["1", "2"])
        again = stack.pids()
        assert again["webhook"] == before["webhook"]
        stack.restart()
        later = stack.say(contact, "hello")
        stack.wait_settled([message_id, later])
        assert stack.pids()["internal"] == stack.described["pids"]["internal"], "it crashed once more"


def test_only_one_service_dies_at_a_crash_point_of_both(make_stack: Callable[..., Stack], contact: str) -> None:
    with make_stack(CRASH_AT="before:queue.queue_of") as stack:
        before = stack.pids()

        stack.say(contact, "!list 2")

        stack.wait_quiet(contact, ["1", "2"])
        now = stack.pids()
        assert (now["webhook"] != before["webhook"], now["internal"] != before["internal"]) == (True, False)


def test_a_point_that_does_not_exist_stops_the_start_with_a_sentence(tmp_path: Path) -> None:
    environment = clean_environment(CRASH_AT="before:store.creat")

    result = cli("up", "--json", "--ports", "0", "--data-dir", str(tmp_path / "data"), env=environment)

    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.endswith("CRASH_AT names no crash point: before:store.creat. pombo doctor --points lists them.")


# ---- that nothing is left out


def test_every_point_is_crash_tested_on_every_store_or_called_by_no_service() -> None:
    assert {point.partition(":")[2] for point in crash.points()} == {
        *(passing.method for passing in PASSINGS),
        *NO_SERVICE_CALLS,
    }
    for store in STORES:
        missed = set(crash.points()) - {f"{case.moment}:{case.passing.method}" for case in CASES if case.store == store}
        excused = {f"{moment}:{method}" for method in NO_SERVICE_CALLS for moment in crash.MOMENTS}
        if store != "sqlite":
            excused |= {"after:clock.sleep", "before:clock.sleep"}  # of SQLite's tests alone: its writer can be held
        assert missed == excused


def test_methods_listed_as_uncalled_are_called_by_no_service() -> None:
    names = {method.partition(".")[2] for method in NO_SERVICE_CALLS}
    reached = reachable(*(f"services.{service}.{module}" for service in SERVICES for module in ("__main__", "main")))
    assert {"shared.pipeline.accept", "shared.pipeline.process_outbound", "services.api.messages"} <= reached
    calls = {
        f"{module}:{node.lineno} {ast.unparse(node)}"
        for module in reached
        for node in ast.walk(ast.parse(source_of(module).read_text()))
        if isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value).endswith("store")
    }
    assert calls == set()


def reachable(*roots: str) -> set[str]:
    """The project's modules that these import, at once or later, directly or not; a store's own code aside."""
    found: set[str] = set()
    todo = list(roots)
    while todo:
        module = todo.pop()
        if module in found or module.startswith("shared.stores") or not source_of(module).exists():
            continue
        found.add(module)
        for node in ast.walk(ast.parse(source_of(module).read_text())):
            if isinstance(node, ast.Import):
                todo += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                todo += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def source_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_document_names_every_method_and_its_callers() -> None:
    text = (ROOT / "docs" / "crash-points.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| ([^|]*) \|([^|]*)\|([^|]*)\|$", text, re.MULTILINE)
    methods = [f"{port}.{name}" for port, names in crash.methods().items() for name in names]
    services = {
        method: ", ".join(name for name in SERVICES if (method, name) in _passed()) or "none" for method in methods
    }

    assert {method: passed.strip() for method, passed, _, _ in rows} == services
    assert len(rows) == len(methods)
    assert all(before.strip() and after.strip() for _, _, before, after in rows)


def _passed() -> set[tuple[str, str]]:
    return {(passing.method, passing.service) for passing in PASSINGS}
