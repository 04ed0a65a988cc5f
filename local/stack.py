"""The stack: all of Pombo on one machine, on loopback, without an account.

The services are the real ones; Cloud Tasks and WhatsApp are local. The services cannot tell the difference.
"""

import fcntl
import json
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from types import FrameType
from typing import Any, TextIO, TypeVar, cast

import click

from local import invocation, ports, terminal
from local.children import Child, end_all
from local.http_call import NO_ANSWER, call
from local.log_follower import LogFollower
from local.ports import LOOPBACK
from local.queues import CannotCreate, ensure_queues
from local.services import SERVICES
from local.stack_files import API_KEY_FILE, LAST_FILE, LOCK_FILE, STACK_FILE
from local.stores import PROGRAMS
from local.stores.program import last_line
from local.terminal import WrongSettings, shout, step
from local.whatsapp.accounts import APP_ID
from shared import config, crash
from shared.config import LOCAL_SECRETS, STORE_SETTINGS
from shared.signals import ignore_further

T = TypeVar("T")

READY_SECONDS = 45
FOREIGN_STORE_SECONDS = 10
"""Seconds for a server that is started next to the stack."""

WATCH_SECONDS = 0.1
SWEEP_EVERY_SECONDS = 10
LOCK_SECONDS = 0.3
"""A command holds the lock for less than a millisecond."""

STORE = "store"
"""The child that runs the store's own server, if the stack starts one."""

PORTS: Mapping[str, int] = {"webhook": 0, "internal": 1, "whatsapp": 2, "tasks": 3, "api": 4, STORE: 6, "control": 7}
"""Each port's offset from the first: 8080 to 8084, 8086 and 8087. 8085 is kept free for the console. The control
address is the simulator's second port.
"""

PORTS_FILE = "ports.json"

FILES = (
    *("logs.jsonl", "*.stderr.log", "store.log", LOCK_FILE),
    *(PORTS_FILE, "pids.json", STACK_FILE, LAST_FILE, API_KEY_FILE, "oidc-*"),
    *(f"{name}.sqlite*" for name in ("pombo", "whatsapp", "tasks", "faults")),
)
"""The files that a stack keeps in its data directory, besides a store's own."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run the stack. `first_port` 0 takes free ports: those of the last run on this data if they are still free,
    because a task that waits in its queue knows its target's address. `store` None: the store that STORE names, or
    SQLite.
    """

    data_dir: Path
    store: str | None = None
    first_port: int = 8080
    whatsapp_url: str | None = None
    sweep: bool = True
    restart: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables; they take precedence over the user's own."""
    store_proxy: Callable[[int], int] | None = None
    """Given the port of the store's own server, the port where the services reach it: that of a proxy in between."""
    keep_api_key: Callable[[Mapping[str, str], Path], None] | None = None
    """Given the environment and a file, makes sure that the file has a key of the API. Raises ClickException. Called at
    the start, and when the store's server has lost its data.
    """


class EndedAtStart(Exception):
    """A signal came before the stack was up."""


class Stack:
    """Starts, watches and ends the processes."""

    def __init__(
        self, options: Options, say: Callable[[str], None] = step, told_to_end: Callable[[], bool] = lambda: False
    ) -> None:
        self._options = options
        self._say = say
        self._told_to_end = told_to_end
        self._store = options.store or os.environ.get("STORE", "").strip() or "sqlite"
        self._program = PROGRAMS.get(self._store)
        is_theirs = self._program is not None and os.environ.get(self._program.setting)
        self._own_program = None if is_theirs else self._program
        offsets = {name: offset for name, offset in PORTS.items() if name != STORE or self._own_program}
        self._ports = ports.choose(offsets, options.first_port, options.data_dir / PORTS_FILE)
        self._logs = options.data_dir / "logs.jsonl"
        self._environment = self._make_environment()
        self._children = {child.name: child for child in self._make_children()}
        self._over = threading.Event()

    @property
    def logs(self) -> Path:
        return self._logs

    @property
    def handler(self) -> str:
        """What decides the replies, as a developer edits or calls it: a file, a module and function, or an address."""
        settings = config.load(self._environment, config.INTERNAL, only=("HANDLER", "HANDLER_URL"))
        url, named = settings.get("HANDLER_URL"), str(settings.get("HANDLER"))
        path = Path(*named.partition(":")[0].split(".")).with_suffix(".py")
        return url or (str(path) if path.is_file() else named)

    def describe(self) -> dict[str, Any]:
        """What `pombo up --json` prints."""
        return {
            "webhook": self._url("webhook"),
            "internal": self._url("internal"),
            "api": self._url("api"),
            "tasks": f"{LOOPBACK}:{self._ports['tasks']}",
            "whatsapp": self._options.whatsapp_url or self._url("whatsapp"),
            "control": self._url("control"),
            "store": self._store,
            "data_dir": str(self._options.data_dir),
            "api_key_file": str(self._api_key_file),
            "pids": self._pids(),
        }

    @contextmanager
    def running(self) -> Iterator["Stack"]:
        """Start all of it; end it on the way out. Raises ClickException if it cannot be started, and EndedAtStart."""
        with _private_files(), _locked(self._options.data_dir):
            try:
                _make_private(self._options.data_dir)
                self._forget()  # files of a stack that was killed
                self._start()
                yield self
            finally:
                self._over.set()
                self._forget()
                # The store last: a service may write while it ends.
                end_all([child for name, child in self._children.items() if name != STORE])
                end_all([child for name, child in self._children.items() if name == STORE])

    def beside(self, work: Callable[[], T], in_any_case: bool = False) -> T:
        """Do `work` in a thread while the stack is kept running; return its result. If a signal comes first, raises
        click.Abort, unless `in_any_case`.
        """
        results: Queue[tuple[T | None, Exception | None]] = Queue()

        def run() -> None:
            try:
                results.put((work(), None))
            except Exception as error:  # noqa: BLE001 - raised again where the result is awaited
                results.put((None, error))

        threading.Thread(target=run, name="pombo-work", daemon=True).start()
        self.watch(lambda: not results.empty(), in_any_case)
        if results.empty():
            raise click.Abort
        result, error = results.get()
        if error is not None:
            raise error
        return cast(T, result)

    def watch(self, until: Callable[[], bool] = lambda: False, in_any_case: bool = False) -> None:
        """Keep all of it running until `until` is true or a signal comes. Restarts a child that died at once."""
        while (in_any_case or not self._told_to_end()) and not until():
            if self._options.restart:
                for child in self._children.values():
                    self._revive(child)
            time.sleep(WATCH_SECONDS)

    def _start(self) -> None:
        self._check_settings()
        self._tell_of_crash()
        ports.check_free(self._ports.values())
        self._write(PORTS_FILE, self._ports)
        store = f"{self._own_program.what}, " if self._own_program else ""
        self._say(f"Starting {store}the Cloud Tasks emulator, the WhatsApp simulator and the services")
        for name in (STORE, "tasks", "whatsapp"):
            if name in self._children:
                self._children[name].start()
        self._wait_store()
        for name in SERVICES:
            self._children[name].start()
        self._keep_api_key_at_start()
        environment = self._environment
        try:
            ensure_queues(
                environment["CLOUD_TASKS_EMULATOR_HOST"],
                environment["GOOGLE_CLOUD_PROJECT"],
                environment["CLOUD_TASKS_LOCATION"],
                environment,
                self._look,
            )
        except CannotCreate as error:
            raise click.ClickException(str(error)) from error
        self._say("Waiting until every process is ready")
        for name, port, path in (
            *((service, service, "/readyz") for service in SERVICES),
            ("whatsapp", "control", "/control/faults"),
        ):
            self._wait_ready(name, self._url(port) + path)
        self._write(LAST_FILE, self._last())
        self._describe()
        if self._options.sweep:
            threading.Thread(target=self._sweep, name="pombo-scheduler", daemon=True).start()

    def _wait_store(self) -> None:
        """Wait until the store's server can be used, also one that the stack did not start."""
        if self._program is None:
            return
        what, setting = self._program.what, self._program.setting
        address = self._environment[setting].strip()
        deadline = time.monotonic() + (READY_SECONDS if self._own_program else FOREIGN_STORE_SECONDS)
        while not self._program.answers(address):
            self._look()
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"{what} is not ready after {READY_SECONDS} s: {self._last_words(STORE)}."
                    if self._own_program
                    else f"The server in {setting} does not answer like {what}. Unset {setting} to let Pombo start one."
                )
            time.sleep(0.05)
        if self._own_program and self._own_program.forgets:
            self._say(f"Note: {what} keeps its data in memory and loses it when Pombo stops")

    def _check_settings(self) -> None:
        """Before anything is started, report what the services would refuse."""
        faults: dict[str, None] = {}
        for service in config.SERVICES:
            try:
                config.load(self._environment, service)
            except config.ConfigError as error:
                faults |= dict.fromkeys(error.faults)
        if faults:
            raise WrongSettings(faults)
        for name, meant in config.misspelt(self._environment).items():
            self._say(f"Note: {name} is set, but Pombo has no such setting. Did you mean {meant}?")

    def _tell_of_crash(self) -> None:
        """A crash point crashes once. If it has, say so: the user would wait for another crash."""
        crash_at = self._environment.get("CRASH_AT", "").strip()
        mark = crash.mark_of(Path(self._environment["SQLITE_PATH"]).parent, crash_at)
        if crash_at and mark.exists():
            self._say(
                f"Note: the crash of CRASH_AT={crash_at} has already happened and does not repeat. "
                f"To crash again, stop Pombo and run: rm {shlex.quote(str(mark))}"
            )

    def _wait_ready(self, name: str, url: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            self._look()
            try:
                if call("GET", url, timeout=2)[0] == 200:
                    return
            except NO_ANSWER:
                pass
            time.sleep(0.05)
        raise click.ClickException(f"{name} is not ready after {READY_SECONDS} s: {self._last_words(name)}")

    def _look(self) -> None:
        """During the start: raise if it cannot go on."""
        if self._told_to_end():
            raise EndedAtStart
        for child in self._children.values():
            if child.returncode is not None:
                code = child.returncode
                how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
                raise click.ClickException(
                    f"{self._what(child.name)} stopped while starting, {how}: {self._last_words(child.name)}"
                )

    def _what(self, name: str) -> str:
        """The program, by the name that a user knows."""
        return self._own_program.what if self._own_program and name == STORE else name

    def _last_words(self, name: str) -> str:
        explain = self._own_program.explain if self._own_program and name == STORE else last_line
        return explain(self._children[name].said())

    def _revive(self, child: Child) -> None:
        if child.returncode is None:
            return
        child.start()
        self._describe()
        self._say(f"{child.name} died; Pombo restarted it")
        if self._own_program and self._own_program.forgets and child.name == STORE:
            self._say(shout(f"{self._own_program.what} keeps its data in memory: ALL EARLIER DATA IS LOST"))
            threading.Thread(target=self._keep_api_key_again, name="pombo-api-key", daemon=True).start()

    @property
    def _api_key_file(self) -> Path:
        return self._options.data_dir / API_KEY_FILE

    def _keep_api_key(self) -> None:
        if self._options.keep_api_key:
            self._options.keep_api_key(self._environment, self._api_key_file)

    def _keep_api_key_at_start(self) -> None:
        """The first calls of a store's server may take longer than a call may: it is busy starting, as all else is."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                return self._keep_api_key()
            except click.ClickException as error:
                if isinstance(error, WrongSettings) or time.monotonic() > deadline:
                    raise
            self._look()
            time.sleep(0.05)

    def _keep_api_key_again(self) -> None:
        """As soon as the store's server can be used again."""
        while not self._over.wait(WATCH_SECONDS):
            with suppress(click.ClickException):
                return self._keep_api_key()
        return None

    def _sweep(self) -> None:
        """Call /sweep, as Cloud Scheduler does in a project."""
        scale = float(self._environment.get("TIME_SCALE") or 1)
        token = self._environment["INTERNAL_TASK_TOKEN"].split(",")[0].strip()
        while not self._over.wait(SWEEP_EVERY_SECONDS / scale):
            try:
                call("POST", self._url("internal") + "/internal/sweep", headers={"X-Internal-Token": token}, timeout=60)
            except NO_ANSWER:
                continue  # the service was killed, or is ending; the next sweep comes soon

    def _make_environment(self) -> dict[str, str]:
        """Local defaults, overridden by the user's own environment."""
        defaults = {
            **LOCAL_SECRETS,
            "APP_ENV": "local",
            "SQLITE_PATH": str(self._options.data_dir / "pombo.sqlite"),
            "GOOGLE_CLOUD_PROJECT": "pombo-local",
            "CLOUD_TASKS_LOCATION": "local",
            "CLOUD_TASKS_EMULATOR_HOST": f"{LOOPBACK}:{self._ports['tasks']}",
            "INBOUND_TASK_QUEUE_NAME": "inbound",
            "OUTBOUND_TASK_QUEUE_NAME": "outbound",
            "INTERNAL_TASK_BASE_URL": self._url("internal"),
            "OIDC_CERTS_URL": self._url("control") + "/control/oidc-certs",
            "WHATSAPP_PHONE_NUMBER_ID": "100000000000001",
            "META_APP_ID": APP_ID,
            "WHATSAPP_API_BASE_URL": self._options.whatsapp_url or self._url("whatsapp"),
        }
        if self._own_program:
            port = self._ports[STORE]
            port = self._options.store_proxy(port) if self._options.store_proxy else port
            defaults[self._own_program.setting] = self._own_program.address(port)
        theirs = {name: value for name, value in os.environ.items() if value or name not in defaults}
        return {**defaults, **theirs, **self._options.settings, "STORE": self._store}

    def _cli_environment(self) -> dict[str, str]:
        """Every setting, for the commands and for doctor; of the secrets only those that lead to the store."""
        names = [setting.name for setting in config.SETTINGS if not setting.secret or setting.name == "REDIS_URL"]
        return {name: self._environment[name] for name in names if name in self._environment}

    def _last(self) -> dict[str, Any]:
        """What the commands need when no stack runs: the way to the records, without the address of our own server, and
        the number of queues, which a new tenant gets one pair of.
        """
        kept = STORE_SETTINGS | {"TENANT_QUEUES"}
        environment = {name: value for name, value in self._cli_environment().items() if name in kept}
        return {"store": self._store, "environment": None if self._own_program else environment}

    def _describe(self) -> None:
        """Write stack.json for the commands, and pids.json for tests and users that kill a process."""
        self._write("pids.json", self._pids())
        secrets = [
            setting.name for setting in config.SETTINGS if setting.secret and self._environment.get(setting.name)
        ]
        described = {**self.describe(), "environment": self._cli_environment(), "secrets": secrets}
        self._write(STACK_FILE, described)

    def _forget(self) -> None:
        (self._options.data_dir / STACK_FILE).unlink(missing_ok=True)

    def _make_children(self) -> Iterator[Child]:
        data_dir, at = str(self._options.data_dir), self._ports
        scale = ["--time-scale", self._environment.get("TIME_SCALE") or "1"]
        webhook_url = self._url("webhook") + "/webhooks/whatsapp"
        arguments: Mapping[str, tuple[str, list[str]]] = {
            "tasks": ("local.tasks", ["--port", str(at["tasks"]), "--data-dir", data_dir, *scale]),
            "whatsapp": (
                "local.whatsapp",
                [
                    *("--port", str(at["whatsapp"]), "--control-port", str(at["control"])),
                    *("--data-dir", data_dir, "--webhook-url", webhook_url, *scale),
                ],
            ),
            **{service: (f"services.{service}", []) for service in SERVICES},
        }
        for name, (module, given) in arguments.items():
            environment = {**self._environment, "PORT": str(at[name])}
            errors = self._logs.with_name(f"{name}.stderr.log")
            yield Child(name, [module, *given], environment, self._logs, errors)
        if self._own_program:
            command = self._own_program.command(at[STORE], self._options.data_dir)
            words = self._logs.with_name("store.log")
            yield Child(STORE, ["--exec", *command], self._environment, words, words)

    def _pids(self) -> dict[str, int | None]:
        served = self._children.get(STORE)
        return {
            **{name: self._children[name].pid for name in (*SERVICES, "tasks", "whatsapp")},
            "store": served.pid if served else None,
        }

    def _url(self, name: str) -> str:
        return f"http://{LOOPBACK}:{self._ports[name]}"

    def _write(self, name: str, value: Any) -> None:
        """Replace the file whole: others read it at any moment. Only for this user: REDIS_URL may hold a password."""
        path = self._options.data_dir / name
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        part.touch(0o600)
        part.write_text(json.dumps(value) + "\n")
        part.replace(path)


def run(options: Options, as_json: bool = False) -> None:
    """`pombo up`: start, print, serve until SIGINT or SIGTERM, end."""
    stack = Stack(options, say=(lambda _sentence: None) if as_json else step, told_to_end=StopRequested())
    try:
        with stack.running():
            if as_json:
                click.echo(terminal.as_json(stack.describe()))
                stack.watch()
            else:
                _serve(stack)
    except EndedAtStart:
        return


def _serve(stack: Stack) -> None:
    described = stack.describe()
    for name in PORTS:
        click.echo(f"  {name:<9} {described[name]}")
    click.echo(f"  {'api key':<9} {described['api_key_file']}")
    say = f'{invocation.program()} say "hello" --wait{invocation.data_dir_option(Path(described["data_dir"]))}'
    step(f"Pombo is up. In another terminal: {say}   Ctrl-C stops it.")
    follower = LogFollower(stack.logs)
    follower.start()
    stack.watch()
    follower.stop()
    step("Stopping")


class StopRequested:
    """Whether a signal asked the stack to end. Any that follow change nothing."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._told = False
        for number in self.NUMBERS:
            signal.signal(number, self._tell)

    def _tell(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a signal handler
        self._told = True
        ignore_further(self.NUMBERS)

    def __call__(self) -> bool:
        return self._told


@contextmanager
def _private_files() -> Iterator[None]:
    """Files that this process and its children create are readable only by their user: logs and databases hold
    customers' messages.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _make_private(data_dir: Path) -> None:
    """The same for existing files. The directory itself is not changed: it may be one of the user's own."""
    for path in (path for pattern in FILES for path in data_dir.glob(pattern)):
        with suppress(OSError):  # another user's file
            path.chmod(0o600)


@contextmanager
def _locked(data_dir: Path) -> Iterator[TextIO]:
    """Allow one stack per data directory, which is created if it does not exist."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds customers' messages
        lock = (data_dir / LOCK_FILE).open("a+")  # not "w", which would empty the lock file of a running stack
    except OSError as error:
        raise click.ClickException(f"Cannot write to {data_dir}: {error.strerror}.") from error
    with lock:
        if not _lock(lock):
            raise click.ClickException(_is_running(data_dir, lock))
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield lock


def _lock(lock: TextIO) -> bool:
    """Take the lock. Retry: a command that checks whether a stack runs also holds the lock for a moment."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _is_running(data_dir: Path, lock: TextIO) -> str:
    lock.seek(0)
    pid = lock.read().strip()
    whose = f" (process {pid})" if pid else ""
    end = f"Stop it with Ctrl-C in its terminal{f', or with: kill {pid}' if pid else ''}."
    return (
        f"A Pombo is already running{whose}, with its data in {data_dir}. {end} Or start another one with "
        "--data-dir DIR and --ports N."
    )
