"""The traffic in steps: the judgment by itself, and the watch over a step with a clock of the tests' own."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from infra.release import metrics
from infra.release.cloud_run import CloudRunService
from infra.release.metrics import DELAY, Counted
from infra.release.rollout import FEW, HOLD, POLL, STEPS, RolloutWatch, in_steps, judged
from infra.release.tools import Refused
from tests.support.project import DEPLOYMENT

OLD = Counted(1000, 5, 100.0)


@pytest.mark.parametrize(
    ("new", "old", "goes_on"),
    [
        (Counted(1000, 5, 100), OLD, True),
        (Counted(1000, 10, 100), Counted(1000, 0, 100), True),  # 1 % exactly
        (Counted(1000, 11, 100), Counted(1000, 0, 100), False),
        (Counted(1000, 11, 100), Counted(1000, 5, 100), False),
        (Counted(1000, 40, 100), Counted(1000, 20, 100), True),  # twice exactly
        (Counted(1000, 41, 100), Counted(1000, 20, 100), False),
        (Counted(100, 5, 100), Counted(10_000, 400, 100), True),  # shares, not counts
        (Counted(1000, 0, 200), OLD, True),  # twice exactly
        (Counted(1000, 0, 201), OLD, False),
        (Counted(19, 19, 9000), OLD, True),
        (Counted(20, 20, 100), OLD, False),
        (Counted(20, 0, 201), OLD, False),
        (Counted(), OLD, True),
        (Counted(1000, 5, 9000), Counted(), True),  # nobody to compare the times with
        (Counted(1000, 5, 9000), Counted(19, 0, 1), True),
        (Counted(1000, 5, 9000), Counted(20, 0, 1), False),
        (Counted(1000, 50, 1), Counted(), False),
        (Counted(1000, 0, None), OLD, True),
    ],
)
def test_a_candidate_is_judged_by_its_failures_and_its_times(new: Counted, old: Counted, goes_on: bool) -> None:
    assert judged(new, old).goes_on is goes_on


def test_too_few_requests_to_judge_are_reported() -> None:
    assert FEW == 20
    assert judged(Counted(19), OLD).reason == "it had 19 requests, too few to judge it (under 20)"


def test_verdict_contains_its_numbers() -> None:
    assert judged(Counted(1000, 30, 300.0), OLD).reason == (
        "3.0% of its 1000 requests failed, and 0.5% of the old revision's 1000"
    )
    assert judged(Counted(1000, 0, 300.0), OLD).reason.endswith("was 300 ms, and 100 ms the old revision's")


def test_rollout_has_the_agreed_steps() -> None:
    assert (STEPS, HOLD) == ((5, 25), 300)
    assert float(DEPLOYMENT["substitutions"]["_HOLD_SECONDS"]) == HOLD


# ---- the watch

SERVICE = CloudRunService("webhook", "my-project", "europe-west1", {})


@dataclass
class World:
    """A clock, and requests that are counted `DELAY` seconds after they were made."""

    fails_from: float = float("inf")
    unreadable_until: float = 0
    time: float = 1000
    looks: list[tuple[float, float, float]] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.time += seconds

    def read(self, _: CloudRunService, began: float, ended: float) -> Mapping[str, Counted]:
        self.looks.append((self.time, began, ended))
        if self.time < self.unreadable_until:
            raise Refused("Cloud Monitoring answers 503.")
        seen = max(0, min(ended, self.time - DELAY) - began)  # ten requests a second
        failing = max(0, min(ended, self.time - DELAY) - max(began, self.fails_from))
        return {"new": Counted(int(seen), int(failing), 50), "old": Counted(int(seen * 19), 0, 50)}

    def watch(self, hold: float = HOLD) -> RolloutWatch:
        return RolloutWatch(hold, self.read, self.now, self.sleep)


def test_a_step_is_judged_by_all_its_requests_once_they_are_counted() -> None:
    world = World()
    verdict = world.watch().step(SERVICE, "new", "old")
    assert verdict.goes_on
    assert "of its 300 requests" in verdict.reason
    assert world.time == 1000 + HOLD + DELAY
    assert world.looks[-1] == (1000 + HOLD + DELAY, 1000, 1000 + HOLD)
    assert {began for _, began, _ in world.looks} == {1000}
    assert all(POLL <= ended - began <= HOLD for _, began, ended in world.looks)


def test_failures_late_in_a_step_are_seen_although_they_are_counted_after_it() -> None:
    world = World(fails_from=1000 + HOLD - 30)
    assert not world.watch().step(SERVICE, "new", "old").goes_on
    assert world.time > 1000 + HOLD


def test_candidate_that_is_bad_at_once_goes_back_before_the_step_ends() -> None:
    world = World(fails_from=1000)
    assert not world.watch().step(SERVICE, "new", "old").goes_on
    assert world.time < 1000 + HOLD + DELAY


def test_unreadable_metrics_stop_a_rollout_only_at_the_end_of_the_step() -> None:
    assert World(unreadable_until=1400).watch().step(SERVICE, "new", "old").goes_on
    verdict = World(unreadable_until=float("inf")).watch().step(SERVICE, "new", "old")
    assert (verdict.goes_on, verdict.reason) == (False, "Cloud Monitoring answers 503.")


def test_hold_of_zero_seconds_checks_once_without_waiting() -> None:
    world = World()
    assert world.watch(0).step(SERVICE, "new", "old").goes_on
    assert (world.time, len(world.looks)) == (1000, 1)
    assert world.watch(0).longest == 0


def test_longest_rollout_time_matches_the_steps() -> None:
    world = World()
    for _ in STEPS:
        world.watch().step(SERVICE, "new", "old")
    assert world.time - 1000 == world.watch().longest


# ---- what is asked of Cloud Monitoring


def test_one_number_for_the_whole_step_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, list[str]]] = []

    class Answer:
        def __enter__(self) -> "Answer":
            return self

        def __exit__(self, *_: object) -> None: ...

        def read(self) -> bytes:
            return b"{}"

    def opened(request: Any, timeout: float) -> Answer:
        assert request.full_url.startswith("https://monitoring.googleapis.com/v3/projects/my-project/timeSeries?")
        assert 0 < timeout <= 60
        asked.append(parse_qs(urlsplit(request.full_url).query))
        return Answer()

    monkeypatch.delenv(metrics.ENDPOINT, raising=False)
    monkeypatch.setattr(metrics, "gcloud", lambda *_: "a-token\n")
    monkeypatch.setattr(metrics.urllib.request, "urlopen", opened)
    assert metrics.counted(SERVICE, 0, 300) == {}
    for query in asked:
        assert query["interval.startTime"] == ["1970-01-01T00:00:00Z"]
        assert query["interval.endTime"] == ["1970-01-01T00:05:00Z"]
        assert query["aggregation.alignmentPeriod"] == ["300s"]
        assert 'resource.labels.service_name = "pombo-webhook"' in query["filter"][0]
    kinds = [query["filter"][0].partition("run.googleapis.com/")[2].partition('"')[0] for query in asked]
    assert kinds == ["request_count", "request_latencies"]


@pytest.mark.parametrize("document", [{"executionErrors": [{"code": 4}]}, {"nextPageToken": "more"}])
def test_incomplete_answer_is_refused(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "gcloud", lambda *_: "a-token")
    monkeypatch.setattr(metrics.urllib.request, "urlopen", lambda *_, **__: io.BytesIO())
    monkeypatch.setattr(metrics.json, "load", lambda _: document)
    with pytest.raises(Refused, match="not whole"):
        metrics.counted(SERVICE, 0, 300)


# ---- between the steps


@dataclass
class Moving:
    """A service whose newest revision is another one after so many looks at it."""

    looks_until_newer: int
    moved: list[tuple[str, ...]] = field(default_factory=list)
    name: str = "pombo-webhook"

    def now(self) -> "Moving":
        return self

    def candidate(self) -> Mapping[str, Any]:
        self.looks_until_newer -= 1
        if self.looks_until_newer < 0:
            raise Refused("pombo-webhook has a newer revision than its candidate.")
        return {"revisionName": "new"}

    def move(self, *how: str) -> None:
        self.moved.append(how)


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_a_newer_revision_between_two_steps_ends_the_rollout(looks: int) -> None:
    service: Any = Moving(looks)
    with pytest.raises(Refused, match=r"goes back to old\. pombo-webhook has a newer revision"):
        in_steps(service, "new", "old", World().watch())
    shares = [("--to-revisions=new=5,old=95",), ("--to-revisions=new=25,old=75",)]
    assert service.moved == [*shares[:looks], ("--to-revisions=old=100", "--clear-tags")]
