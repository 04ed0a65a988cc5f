"""A chaos run, from its start to its account."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import islice
from urllib.parse import urlsplit

import click

from local.chaos.account import Books, Rules, by_key, entries, take_account
from local.chaos.breath import Breath
from local.chaos.control import Control
from local.chaos.driver import Driver
from local.chaos.handler import TRIES
from local.chaos.logs import read_logs
from local.chaos.plan import Plan, make_plan
from local.chaos.proof import KILLS, needs, share
from local.chaos.quiet import Watch
from local.chaos.report import Result
from local.chaos.schedule import STORE, Kind, blows
from local.chaos.trouble import Parts, Trouble
from local.chaos.wishes import Wishes
from local.cut_proxy import CutProxy
from local.faults import BOOK, FaultBook
from local.ports import LOOPBACK
from local.stack import Options, Stack
from shared import bootstrap, config
from shared.cli import trace
from shared.cli.running import Running
from shared.domain.errors import StoreUnavailable
from shared.domain.record import Delivery
from shared.pipeline.ports import Store

BACK_SECONDS = 30
"""Longer than a store takes to start."""

TIMELINES = 5
"""Of bad messages."""

LOOK_EVERY = 1.0
"""Seconds between two looks at what is open."""

TELL_EVERY = 5.0
"""Seconds between two words of progress."""


class Chaos:
    """One run on one stack."""

    def __init__(self, wishes: Wishes, told_to_end: Callable[[], bool], say: Callable[[str], None]) -> None:
        self._wishes = wishes
        self._say = say
        self._plan: Plan = make_plan(wishes.order)
        self._proxy: CutProxy | None = None
        self._began = time.monotonic()
        self._told_at = 0.0
        tries = wishes.data_dir / "tries"
        tries.mkdir(parents=True)
        settings = {
            "HANDLER": wishes.handler,
            "HANDLER_URL": "",
            "HANDLER_URL_SECRET": "",
            "IN_DOUBT_POLICY": wishes.policy,
            "TIME_SCALE": f"{wishes.time_scale:g}",
            TRIES: str(tries),
        }
        options = Options(
            wishes.data_dir, wishes.store, first_port=0, sweep=wishes.sweep, settings=settings, door=self._door
        )
        self._stack = Stack(options, say=lambda _: None, told_to_end=told_to_end)

    def run(self) -> Result:
        """All of it. Raises ClickException where it cannot be done."""
        with ExitStack() as ending:
            if self._proxy:
                ending.enter_context(self._proxy)
            ending.enter_context(self._stack.running())
            self._open()
            ending.callback(self._pool.shutdown)
            ending.callback(self._over.set)
            try:
                is_quiet, tasks_left = self._stack.beside(self._break_everything)
            except click.Abort:
                self._over.set()
                self._say = lambda _: None  # the thread that we no longer wait for has no more to say
                return self._stack.beside(lambda: self._result(False, None, interrupted=True), in_any_case=True)
            return self._stack.beside(lambda: self._result(is_quiet, tasks_left))

    # ---- before

    def _door(self, port: int) -> int:
        self._proxy = CutProxy(LOOPBACK, port)
        return self._proxy.port

    def _open(self) -> None:
        described = self._stack.describe()
        environment = json.loads((self._wishes.data_dir / "stack.json").read_text())["environment"]
        settings = config.load(environment, config.CLI)
        self.sender: str = settings["WHATSAPP_PHONE_NUMBER_ID"]
        self.store: Store = bootstrap.build_store(settings)
        self.control = Control(described["control"])
        self._watch = Watch(self.store, self.control, environment, self._wishes.time_scale)
        self._over = threading.Event()
        self._breath = Breath()
        self._driver = Driver(self._plan.batches, self.control, self._breath)
        parts = Parts(
            pids=lambda: self._stack.describe()["pids"],
            ports=dict(_ports(described)) | ({STORE: self._proxy.target_port} if self._proxy else {}),
            control=self.control,
            faults=FaultBook(self._wishes.data_dir / BOOK),
            proxy=self._proxy,
        )
        self._trouble = Trouble(parts, blows(self._wishes.order.seed, self._wishes.weather), self._breath)
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="pombo-chaos")
        for contact in sorted(self._plan.refused):
            fault = {"on": "send", "kind": "error", "code": 131026, "times": 0, "match": {"to": contact}}
            self.control.post("faults", fault)
        if self._wishes.withhold_receipts:
            self.control.post("faults", {"on": "receipt", "kind": "withhold", "times": 0})
        self._began = time.monotonic()

    # ---- meanwhile

    def _break_everything(self) -> tuple[bool, int | None]:
        """Until all is sent, the time is over, and it is quiet again."""
        sending = self._pool.submit(self._driver.run, self._over)
        breaking = self._pool.submit(self._trouble.run, self._over)
        self._wait_while_sending(sending, breaking)
        self._over.set()
        sending.result()
        breaking.result()
        self._say("No more trouble; waiting until it is quiet")
        return self._watch.wait(self._tell)

    def _wait_while_sending(self, sending: "Future[None]", breaking: "Future[None]") -> None:
        while not (sending.done() and self._is_enough()):
            if breaking.done():
                breaking.result()
            if sending.done():
                sending.result()
            time.sleep(LOOK_EVERY)
            records = self._watch.backlog().records
            self._breath.look(records, time.monotonic())
            kills = sum(number for (kind, _), number in self._trouble.dealt.copy().items() if kind is Kind.KILL)
            sent = f"{self._driver.sent} of {self._wishes.order.messages} messages sent"
            drawing = "; drawing breath" if self._breath.is_taken else ""
            self._tell(f"{sent}, {records} records open, {kills} kills{drawing}")

    def _is_enough(self) -> bool:
        """The time is over, and each process was killed as often as is asked; on a slow machine that takes longer."""
        seconds, least = self._wishes.order.seconds, share(KILLS, self._wishes.order.messages)
        killed = all(self._trouble.dealt[Kind.KILL, name] >= least for name in self._wishes.killed)
        return self._seconds > (seconds if killed else 2 * seconds)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _tell(self, sentence: str) -> None:
        if time.monotonic() - self._told_at > TELL_EVERY:
            self._told_at = time.monotonic()
            self._say(f"{self._seconds:4.0f} s: {sentence}")

    # ---- after

    def _result(self, is_quiet: bool, tasks_left: int | None, interrupted: bool = False) -> Result:
        self._pool.shutdown()  # the trouble is over once its end is undone
        wishes, order = self._wishes, self._wishes.order
        ended_at = datetime.now(UTC) if interrupted else None
        ledger = by_key(entries(self.control.get("ledger")))
        told = read_logs(wishes.data_dir, {key for key, found in ledger.items() if key and len(found) > 1})
        rules = Rules(self.sender, wishes.policy, wishes.limits.doubt_window)
        sent = islice(self._plan.messages, self._driver.sent)
        books = Books(ledger, self._read, self._plan.refused, rules, told.evidence, ended_at)
        account = take_account(sent, books)
        dealt, made = self._trouble.dealt, self.control.get("faults/made")
        kills = {name: dealt[Kind.KILL, name] for name in wishes.killed}
        shown = needs(
            order.messages, kills, sum(told.interrupted.values()), account.doubted, made.get("task duplicate", 0)
        )
        return Result(
            seed=order.seed,
            store=wishes.store,
            sent=self._driver.sent,
            planned=order.messages,
            seconds=self._seconds,
            sweep=wishes.sweep,
            policy=wishes.policy,
            dealt=dealt,
            swallowed=self._proxy.swallowed if self._proxy else 0,
            made=made,
            account=account,
            told=told,
            needs=list(shown),
            tasks_left=tasks_left,
            quiet=is_quiet,
            interrupted=interrupted,
            timelines=[self._timeline(finding.key) for finding in account.findings[:TIMELINES]],
        )

    def _read(self, key: str) -> Delivery | None:
        """A record. A store that was killed just before comes back first."""
        deadline = time.monotonic() + BACK_SECONDS
        while True:
            try:
                return self.store.get(key)
            except StoreUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _timeline(self, key: str | None) -> str:
        """What `pombo trace` shows of it."""
        running = Running(self.store, self.sender, None, self._stack.logs)
        records = trace.find_records(running, key) if key else ()
        timeline = trace.timeline_of(running, records) if records else trace.from_logs(running, key or "")
        return trace.as_text(timeline) if timeline else "Nothing is known of it."


def _ports(described: dict[str, str]) -> Iterator[tuple[str, int]]:
    for name in ("webhook", "internal", "tasks"):
        address = described[name]
        yield name, int(urlsplit(address if "//" in address else f"//{address}").port or 0)
