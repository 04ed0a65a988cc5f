"""A chaos run, from its start to its result."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime

import click

from cli.api_key import keep_api_key
from cli.chaos.api_load import ApiLoad, client_of
from cli.chaos.backpressure import Backpressure
from cli.chaos.businesses import api_keys, register
from cli.chaos.collect import close
from cli.chaos.drain import DrainWatch
from cli.chaos.enough_faults import KILLS, share
from cli.chaos.fault_injection import FaultInjector
from cli.chaos.fault_schedule import Action, disruptions
from cli.chaos.handler import TRIES, tries_in
from cli.chaos.load_generator import LoadGenerator
from cli.chaos.plan import Plan, make_plan
from cli.chaos.progress import Progress
from cli.chaos.replay import replay
from cli.chaos.report import End, Result
from cli.chaos.run_settings import RunSettings
from cli.chaos.running_stack import RunningStack, StoreProxy
from local.stack import Options, Stack
from shared.domain.identity import message_event_id

LOOK_EVERY = 1.0
"""Seconds between two checks of what is open."""

Say = Callable[[str], None]


def run(run_settings: RunSettings, told_to_end: Callable[[], bool], say: Say) -> Result:
    """Run to the end. Raises ClickException if the run is not possible, and EndedAtStart."""
    store_proxy = StoreProxy()
    options = Options(
        run_settings.data_dir,
        run_settings.store,
        first_port=0,
        sweep=run_settings.sweep,
        settings=_settings(run_settings),
        store_proxy=store_proxy.before,
        keep_api_key=keep_api_key,
    )
    stack = Stack(options, say=lambda _: None, told_to_end=told_to_end)
    with ExitStack() as ending:
        ending.callback(store_proxy.close)
        ending.enter_context(stack.running())
        chaos = Chaos(
            run_settings, make_plan(run_settings.order), RunningStack.of(stack, run_settings, store_proxy.proxy), say
        )
        ending.callback(chaos.stop)
        try:
            end = stack.beside(chaos.break_everything)
        except click.Abort:
            end = chaos.stop()
        return stack.beside(lambda: chaos.close(end), in_any_case=True)


def _settings(run_settings: RunSettings) -> dict[str, str]:
    tries = tries_in(run_settings.data_dir)
    tries.mkdir(parents=True)
    return {
        "HANDLER": run_settings.handler,
        "HANDLER_URL": "",
        "HANDLER_URL_SECRET": "",
        "HANDLER_KINDS": "",
        "IN_DOUBT_POLICY": run_settings.policy,
        "TIME_SCALE": f"{run_settings.time_scale:g}",
        TRIES: str(tries),
    }


class Chaos:
    """One run on a stack that is up: a thread generates the customers' load, another that of the API, and one injects
    the faults.
    """

    def __init__(self, run_settings: RunSettings, plan: Plan, running_stack: RunningStack, say: Say) -> None:
        self._run_settings, self._plan, self._running_stack, self._say = run_settings, plan, running_stack, say
        self._over, self._enough = threading.Event(), threading.Event()
        self._backpressure = Backpressure()
        self._driver = LoadGenerator(plan.batches, running_stack.control, self._backpressure, running_stack.businesses)
        self._programs = ApiLoad(
            plan.by_api, client_of(running_stack.api), running_stack.businesses, self._backpressure
        )
        self._injector = FaultInjector(
            running_stack.parts, disruptions(run_settings.order.seed, run_settings.rates), self._backpressure
        )
        self._watch = DrainWatch(
            running_stack.running.store,
            running_stack.control,
            running_stack.parts.faults,
            running_stack.environment,
            run_settings.time_scale,
        )
        self._pool = ThreadPoolExecutor(3, thread_name_prefix="pombo-chaos")
        self._began = time.monotonic()
        self._tell = Progress(lambda sentence: self._say(f"{self._seconds:4.0f} s: {sentence}")).tell

    def break_everything(self) -> End:
        """Inject faults until the time is over, and send until all is sent; then wait until it is quiet."""
        stack = self._running_stack
        register(stack.businesses[1:], stack.running, stack.queue_pairs, stack.control, stack.data_dir)
        keys = api_keys(stack.businesses, stack.running)
        self._forbid()
        self._began = time.monotonic()
        sending = [
            self._pool.submit(self._driver.run, self._over),
            self._pool.submit(self._programs.run, keys, self._over),
        ]
        breaking = self._pool.submit(self._injector.run, self._enough)
        self._wait_while_sending(sending, breaking)
        self._over.set()
        self._enough.set()
        for ended in (*sending, breaking):
            ended.result()
        self._say("Fault injection is over; waiting until all work is done")
        is_quiet, tasks_left = self._watch.wait(self._tell)
        replayed = replay(self._running_stack, self._dead_as_planned()) if is_quiet else 0
        if replayed:
            self._say(f"Replayed {replayed} dead letters; waiting until all work is done")
            is_quiet, tasks_left = self._watch.wait(self._tell)
        return End(self._seconds, self._driver.sent, is_quiet, tasks_left, replayed)

    def stop(self) -> End:
        """Stop sending and undo the faults. Nothing that is still open now is waited for."""
        self._say = lambda _: None  # the run does not wait for its thread any more, which must not print
        self._over.set()
        self._enough.set()
        self._pool.shutdown()
        return End(self._seconds, self._driver.sent, False, None, early=datetime.now(UTC))

    def close(self, end: End) -> Result:
        return close(self._run_settings, self._plan, self._running_stack, self._injector, self._programs.sent, end)

    def _forbid(self) -> None:
        """Install the permanent faults, from the first moment on."""
        for contact in sorted(self._plan.refused):
            fault = {"on": "send", "kind": "error", "code": 131026, "times": 0, "match": {"to": contact}}
            self._running_stack.control.post("faults", fault)
        if self._run_settings.withhold_receipts:
            self._running_stack.control.post("faults", {"on": "receipt", "kind": "withhold", "times": 0})

    def _dead_as_planned(self) -> set[str]:
        """The keys of the events that always raise. If the last attempt was cut short, one is dead of `attempts`."""
        known = self._running_stack.businesses
        raising = (message for message in self._plan.messages if message.script.raises is None)
        return {message_event_id("meta", known[message.tenant].sender, message.id) for message in raising}

    def _wait_while_sending(self, sending: Sequence["Future[None]"], breaking: "Future[None]") -> None:
        """What is unsent when the faults end is sent without them: on a slow machine, whose processes take longer to
        start than they live, it might never be sent otherwise.
        """
        while not (all(future.done() for future in sending) and self._is_enough()):
            if self._is_enough():
                self._enough.set()
            for ended in (future for future in (*sending, breaking) if future.done()):
                ended.result()
            time.sleep(LOOK_EVERY)
            backlog = self._watch.look()
            self._backpressure.look(backlog.sum, time.monotonic())
            kills = sum(number for (kind, _), number in self._injector.injected.copy().items() if kind is Action.KILL)
            sent = f"{self._driver.sent} of {self._run_settings.order.messages} messages sent"
            by_api = f", {len(self._programs.sent)} through the API" if self._plan.by_api else ""
            drawing = "; paused for backpressure" if self._backpressure.is_paused else ""
            self._tell(f"{sent}{by_api}, {backlog}, {kills} kills{drawing}")

    def _is_enough(self) -> bool:
        """The time is over and each process was killed often enough; on a slow machine that takes longer."""
        seconds, least = self._run_settings.order.seconds, share(KILLS, self._run_settings.order.messages)
        killed = all(self._injector.injected[Action.KILL, name] >= least for name in self._run_settings.killed)
        return self._seconds > (seconds if killed else 2 * seconds)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began
