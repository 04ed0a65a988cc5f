"""The budget of the webhook: what a POST costs in calls, documents, tasks, lines and bytes, in a real process."""

import http.client
import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from shared.bootstrap.webhook import build_webhook
from shared.domain.record import Task
from shared.pipeline.intake import Created
from tests.support import event_loop, parts
from tests.support.counting_fakes import CountingFakes, counting_fakes
from tests.support.parts import ROOT, Program

BUDGET: Mapping[str, Mapping[str, int]] = tomllib.loads((ROOT / "tests/data/webhook_budget.toml").read_text())
START, ACCEPTED = "the start", "the accept step of a message"
AT_MOST = {"sent_bytes", "log_bytes", "modules", "calls"}
"""These differ a little between runs or versions of Python. All others are exact."""

SLACK = 0.8
"""A figure below this share of its budget: the budget is too generous to notice a mistake."""

MANY = 100


@dataclass(frozen=True)
class Webhook:
    """`python -m services.webhook` on the fakes."""

    port: int
    program: Program
    fakes: CountingFakes

    def post(self, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("POST", "/webhooks/whatsapp", body, {"X-Hub-Signature-256": parts.signed(body)})
            assert connection.getresponse().status == 200
        finally:
            connection.close()

    def cost_of(self, body: bytes) -> dict[str, int]:
        """Everything that this POST costs."""
        self.fakes.reset()
        before = self.program.out.stat().st_size
        self.post(body)
        lines = self.program.out.read_bytes()[before:]
        store, queue = self.fakes.store, self.fakes.queue
        assert not store.unknown
        assert not queue.unknown
        reads = store.calls.pop("read", 0)
        return {
            "store_calls": store.calls.total(),
            "writes": store.created + store.changed,
            "reads": reads,
            "task_calls": queue.calls.total(),
            "tasks": queue.tasks,
            "log_lines": lines.count(b"\n"),
            "sent_bytes": store.received + queue.received,
            "log_bytes": len(lines),
        }


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    directory, port = tmp_path_factory.mktemp("webhook"), parts.free_port()
    with counting_fakes() as fakes:
        environment = parts.environment(
            directory,
            PORT=str(port),
            STORE="firestore",
            FIRESTORE_EMULATOR_HOST=fakes.firestore,
            CLOUD_TASKS_EMULATOR_HOST=fakes.cloud_tasks,
        )
        webhook = Webhook(port, parts.run(directory, "services.webhook", environment), fakes)
        webhook.post(messages("warm", 1))
        yield webhook
        assert webhook.program.end() == 0


def messages(tag: str, count: int) -> bytes:
    return parts.post(*(parts.text(f"wamid.{tag}.{number}", "Is the table free?") for number in range(count)))


def receipts(tag: str, count: int) -> bytes:
    """Each of another message of ours."""
    echoes = (f"pombo1.{number:040x}.0.{'c' * 32}" for number in range(count))
    return parts.post(
        statuses=tuple(
            parts.receipt(f"wamid.{tag}.{number}", biz_opaque_callback_data=echo) for number, echo in enumerate(echoes)
        )
    )


POSTS: Mapping[str, tuple[Callable[[], bytes], bool]] = {
    "a new message": (lambda: messages("new", 1), False),
    "a redelivered message": (lambda: messages("again", 1), True),
    f"{MANY} new messages": (lambda: messages("many", MANY), False),
    f"{MANY} redelivered messages": (lambda: messages("many again", MANY), True),
    "a receipt": (lambda: receipts("one", 1), False),
    f"{MANY} receipts": (lambda: receipts("many", MANY), False),
}
"""The body, and whether it came before."""


def check(cost: Mapping[str, int], budget: Mapping[str, int]) -> None:
    assert cost.keys() == budget.keys()
    for name, figure in cost.items():
        if name in AT_MOST:
            assert SLACK * budget[name] <= figure <= budget[name], f"{name}: {figure}, its budget is {budget[name]}"
        else:
            assert figure == budget[name], f"{name}: {figure}, its budget is {budget[name]}"


def test_budget_names_what_is_counted() -> None:
    assert BUDGET.keys() == {*POSTS, START, ACCEPTED}


@pytest.mark.parametrize("name", POSTS)
def test_a_post_costs_its_budget(webhook: Webhook, name: str) -> None:
    body, came_before = POSTS[name][0](), POSTS[name][1]
    if came_before:
        webhook.post(body)
    check(webhook.cost_of(body), BUDGET[name])


class Instant:
    """A store and a queue that have done everything at once."""

    async def create_all(self, records: Sequence[Any], _: Any) -> list[Created]:
        return [Created()] * len(records)

    async def ensure_all(self, tasks: Sequence[Any], _: Any) -> list[None]:
        return [None] * len(tasks)

    def queue_of(self, task: Task) -> str:
        return task.kind


def test_a_message_takes_no_more_function_calls_than_its_budget(tmp_path: Path) -> None:
    """Ours and the standard library's, without those in C: the nearest to a count of instructions that is stable."""
    with parts.logged():
        webhook = build_webhook(parts.environment(tmp_path))
        instant: Any = Instant()
        accept = replace(webhook.accept, store=instant, queue=instant)
        event_loop.complete(accept(parts.incoming(messages("warm", 1))))
        incoming, calls = parts.incoming(messages("counted", 1)), Counter[str]()
        sys.setprofile(lambda _frame, event, _arg: calls.update((event,)))
        try:
            event_loop.complete(accept(incoming))
        finally:
            sys.setprofile(None)
    check({"calls": calls["call"]}, BUDGET[ACCEPTED])


COUNT = """
import json, sys
from services.webhook.__main__ import make_app
from shared.bootstrap import webhook
make_app(webhook.parts())
print(json.dumps({"modules": len(sys.modules)}))
"""


def test_the_start_imports_no_more_than_its_budget(tmp_path: Path) -> None:
    environment = parts.environment(tmp_path, STORE="firestore", FIRESTORE_EMULATOR_HOST="127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-c", COUNT],
        env={"PATH": os.environ["PATH"], **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cost: dict[str, Any] = json.loads(done.stdout)
    check(cost, BUDGET[START])
