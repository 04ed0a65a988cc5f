"""The benchmark: statistics, ratios, the table, the proof of durable work, the options, the page and the plot."""

import asyncio
import hashlib
import hmac
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import emulators, environments, load, measure, page, payloads, results
from bench.environments import ROOT
from bench.errors import BenchError
from bench.fakes.calls import ALREADY_EXISTS, INVALID, OK, Counts
from bench.fakes.cloud_tasks import CloudTasks
from bench.fakes.firestore import Firestore
from bench.figures import FIGURES, ROWS, Figure, Summary, markdown, rotated, summarise, table
from bench.options import Options, parse
from bench.plot import draw
from bench.processes import cpu_seconds, memory_bytes, tree
from bench.profile import AREAS, area_of
from bench.proof import Work, check_answers, check_work
from bench.servers import SERVERS
from shared.channels.meta import fields

CPU = next(figure for figure in FIGURES if figure.key == "cpu_message_16")
SAMPLES: Mapping[str, Mapping[str, list[float]]] = {
    "product": {"cpu_message_16": [210.0, 200.0, 250.0], "cold": [150.0]},
    "stock": {"cpu_message_16": [800.0, 1000.0, 900.0], "cold": [300.0]},
}


# ---- statistics


def test_a_summary_has_median_spread_and_ratio_to_the_stock_median() -> None:
    found = summarise({"product": [250.0, 200.0, 210.0], "stock": [800.0, 1000.0, 900.0], "floor": []})

    assert found == {
        "product": Summary(median=210.0, least=200.0, most=250.0, ratio=210 / 900),
        "stock": Summary(median=900.0, least=800.0, most=1000.0, ratio=1.0),
    }


def test_without_stock_in_the_run_there_is_no_ratio() -> None:
    assert summarise({"product": [1.0]})["product"].ratio is None


def test_a_stock_median_of_zero_gives_no_ratio() -> None:
    assert summarise({"product": [1.0], "stock": [0.0]})["product"].ratio is None


def test_rotation_lets_each_server_go_first_and_keeps_all() -> None:
    names = ["a", "b", "c"]

    orders = [rotated(names, round_) for round_ in range(4)]

    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
    assert rotated([], 3) == []


# ---- the table


def test_the_table_has_a_line_for_each_figure_and_server() -> None:
    lines = table(results.summaries_of(SAMPLES))

    assert lines[0].split() == ["server", "median", "[min-max]", "of", "stock"]
    assert re.split(r"\s{2,}", lines[1]) == [f"{CPU.label} (µs)", "product", "210", "[200-250]", "0.23"]
    assert lines[2].split() == ["stock", "900", "[800-1,000]", "1.00"]
    assert len(lines) == 5


def test_a_small_ratio_keeps_two_digits_that_say_something() -> None:
    line = table({"cpu_message_16": {"floor": Summary(40.0, 40.0, 40.0, 0.0478)}})[1]

    assert line.endswith("0.048")


def test_a_page_has_a_column_for_each_server_and_a_dash_for_no_sample() -> None:
    lines = markdown(results.summaries_of(SAMPLES), ["product", "stock", "ack"])

    assert lines[0] == "| figure | product | stock | ack |"
    assert lines[2] == f"| {CPU.label}, µs | 210 [200-250] **0.23** | 900 [800-1,000] **1.00** | – |"


def test_every_row_that_can_be_chosen_has_a_figure() -> None:
    assert set(ROWS) == {figure.row for figure in FIGURES}
    assert len({figure.key for figure in FIGURES}) == len(FIGURES)


# ---- the proof


def counts(created: int = 0, tasks: int = 0, changed: int = 0, **unknown: int) -> dict[str, Any]:
    return {"created": created, "tasks": tasks, "changed": changed, "unknown": unknown}


def test_a_durable_server_that_stored_everything_passes() -> None:
    check_work("product", True, Work(messages=5, receipts=2), counts(created=5, tasks=5, changed=2))


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (counts(created=4, tasks=5), "5 documents were due, and the fakes counted 4"),
        (counts(created=5, tasks=4), "5 tasks were due, and the fakes counted 4"),
        (counts(created=0, tasks=0), "5 documents were due, and the fakes counted 0"),
    ],
)
def test_a_server_that_skips_work_fails_the_run(found: Mapping[str, Any], what: str) -> None:
    with pytest.raises(BenchError, match=f"stock skipped work: 5 messages .* {what}"):
        check_work("stock", True, Work(messages=5), found)


def test_a_skipped_receipt_fails_the_run() -> None:
    with pytest.raises(BenchError, match="3 writes of receipts were due, and the fakes counted 2"):
        check_work("product", True, Work(receipts=3), counts(changed=2))


def test_more_work_than_was_due_fails_the_run() -> None:
    with pytest.raises(BenchError, match="floor did more than its work"):
        check_work("floor", True, Work(messages=1), counts(created=2, tasks=1))


def test_a_server_that_stores_nothing_may_not_store() -> None:
    check_work("ack", False, Work(messages=9), counts())
    with pytest.raises(BenchError, match="ack did more than its work"):
        check_work("ack", False, Work(messages=9), counts(created=1))


def test_a_call_that_the_fakes_do_not_know_fails_the_run() -> None:
    with pytest.raises(BenchError, match="a call that the fakes do not know: RunQuery"):
        check_work("product", True, Work(), counts(RunQuery=1))


def test_every_answer_must_be_200() -> None:
    check_answers("stock", 3, 3, {})
    with pytest.raises(BenchError, match=r"stock answered 1 of 3 requests with 200; the others: 2 × 500\."):
        check_answers("stock", 3, 1, {"500": 2})
    with pytest.raises(BenchError, match="stock took no request"):
        check_answers("stock", 0, 0, {})


def test_product_and_baselines_run_the_same_versions_of_shared_packages() -> None:
    """Else a ratio would compare two versions of a library."""
    locks = (environments.lock_of(environments.WEBHOOK), environments.BASELINES_LOCK)
    product, baselines = (pinned(lock) for lock in locks)

    shared = product.keys() & baselines.keys()
    assert {"functions-framework", "google-auth", "httptools", "orjson", "uvloop"} <= shared
    assert {name: (product[name], baselines[name]) for name in shared if product[name] != baselines[name]} == {}


def pinned(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock.read_text(), re.M))


class Round:
    """A round of the product whose load and fakes say what the test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, counted: Mapping[str, Any], sent: int = 5, ok: int = 5) -> None:
        self.done: list[str] = []
        self.specs: list[Mapping[str, Any]] = []
        result = {"sent": sent, "ok": ok, "statuses": {}, "seconds": 2.0, "p50": 0.001, "p95": 0.002, "p99": 0.003}
        result |= {"server_cpu": 0.1, "own_cpu": 0.1, "fakes_cpu": 0.1, "late_p99": 0.0}

        def run_load(spec: Mapping[str, Any], *_: Any) -> Mapping[str, Any]:
            self.specs.append(spec)
            return result

        monkeypatch.setattr(measure, "run_load", run_load)
        monkeypatch.setattr(measure, "_running", lambda *_: nullcontext((None, 0.1, 1)))
        fakes: Any = SimpleNamespace(
            pid=1, reset=lambda: self.note("reset", None), counts=lambda: self.note("counts", counted)
        )
        given: Any = SimpleNamespace()
        self.harness = measure.Harness(given, fakes, None, None, seconds=1.0, rows=frozenset(ROWS))
        self.server = SERVERS["product"]
        self.round = measure._Round(self.server, self.harness, 1, 1, measure.Measured())

    def note(self, what: str, result: Any) -> Any:
        self.done.append(what)
        return result


@pytest.mark.parametrize(
    ("load_of", "wanted"),
    [
        (lambda it: it.round.messages(), counts(created=5, tasks=5)),
        (lambda it: it.round.single(), counts(created=5, tasks=5)),
        (lambda it: it.round.receipts(), counts(changed=5)),
        (lambda it: it.round.large(), counts(created=measure.LARGE, tasks=measure.LARGE)),
        (lambda it: measure.cold_start(it.server, it.harness), counts(created=1, tasks=1)),
    ],
    ids=["messages", "single", "receipts", "large", "cold start"],
)
def test_each_load_is_proved_by_the_counts_since_its_own_reset(
    load_of: Callable[[Round], Any], wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    proved = Round(monkeypatch, wanted)
    load_of(proved)
    assert proved.done == ["reset", "counts"]
    for what in ("created", "tasks", "changed"):
        for off in (-1, 1):
            with pytest.raises(BenchError, match=r"skipped work|did more than its work"):
                load_of(Round(monkeypatch, wanted | {what: wanted[what] + off}))


def test_figures_of_a_round_are_in_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five requests took 2 s, and a tenth of a second of the server's processor."""
    of_messages = Round(monkeypatch, counts(created=5, tasks=5))
    of_messages.round.messages()
    of_messages.round.latency()
    assert of_messages.round.found.figures == pytest.approx(
        {"rate": 2.5, "capacity": 50.0, "cpu_message_16": 20_000.0, "p50": 1.0, "p95": 2.0, "p99": 3.0}
    )
    assert [spec["rate"] for spec in of_messages.specs] == [0.0, 1.25], "latency is measured at half load"
    of_large = Round(monkeypatch, counts(created=1000, tasks=1000), sent=3, ok=1)
    of_large.round.large()
    assert of_large.round.found.figures == {"large_seconds": 2.0, "large_deliveries": 3, "large_cpu": 100.0}


def test_percentile_is_the_smallest_value_that_its_share_does_not_exceed() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [load.percentile(hundred, share) for share in (0.5, 0.95, 0.99)] == [50.0, 95.0, 99.0]
    assert [load.percentile([7.0], share) for share in (0.5, 0.95, 0.99)] == [7.0] * 3


def test_load_with_a_request_that_was_not_answered_200_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BenchError, match="answered 4 of 5 requests with 200"):
        Round(monkeypatch, counts(created=4, tasks=4), ok=4).round.messages()


# ---- the fakes


def test_fake_queue_counts_each_named_task_once() -> None:
    counted = Counts()
    queue, path = CloudTasks(counted), "/v2/projects/p/locations/l/queues/inbound/tasks"

    codes = [queue.rest("POST", path, json.dumps({"task": {"name": name}}).encode())[0] for name in ("a", "b", "a", "")]

    assert codes == [OK, OK, ALREADY_EXISTS, INVALID]
    assert (counted.tasks, counted.refused) == (2, 1)


def test_fake_store_counts_a_new_document_once_and_all_other_writes_apart() -> None:
    counted = Counts()
    new = {"update": {"name": "a", "fields": {}}, "currentDocument": {"exists": False}}
    receipt = {"update": {"name": "b", "fields": {}}, "currentDocument": {"exists": True}}
    writes = json.dumps({"writes": [new, new, receipt]}).encode()

    code, answer = Firestore(counted).rest("POST", "/v1/projects/p/databases/d/documents:batchWrite", writes)

    assert (code, [status.get("code", OK) for status in json.loads(answer)["status"]]) == (OK, [OK, ALREADY_EXISTS, OK])
    assert (counted.created, counted.changed, counted.refused) == (1, 1, 1)


# ---- options


def test_without_options_everything_runs_against_the_fakes() -> None:
    options = parse([])

    assert (options.rounds, options.seconds, options.against) == (5, 3.0, ("fakes",))
    assert (options.rows, options.servers) == (ROWS, tuple(SERVERS))


def test_names_come_in_the_order_of_the_table_whatever_the_order_given() -> None:
    assert parse(["--servers", "stock,product", "--rows", "cold, cpu"]).servers == ("product", "stock")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--servers", "stok"], "there is no server 'stok'; did you mean stock?"),
        (["--rows", "xyz"], f"there is no row 'xyz'; choose from {', '.join(ROWS)}"),
        (["--against", "emulator"], "there is no target 'emulator'; did you mean emulators?"),
        (["--stores", ","], "it names no store; choose from sqlite, redis, firestore"),
        (["--rounds", "0"], "'0' is not a number from 1 to 50"),
        (["--seconds", "x"], "'x' is not a number from 0.2 to 30"),
        (["--round", "1"], "unrecognized arguments: --round 1"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_exit_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)

    written = capsys.readouterr().err
    assert ended.value.code == 2
    assert written.startswith("bench: ")
    assert sentence in written
    assert written.count("\n") == 1


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])

    assert 'make bench ARGS="--rounds 1 --seconds 1"' in capsys.readouterr().out


# ---- the load


@pytest.mark.parametrize("kind", payloads.KINDS)
def test_each_request_is_new_and_signed(kind: str) -> None:
    requests = [*payloads.requests(kind, 1, 3), *payloads.requests(kind, 2, 3)]

    assert len(set(requests)) == 6
    for request in requests:
        head, _, body = request.partition(b"\r\n\r\n")
        headers = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        expected = hmac.new(payloads.SECRET.encode(), body, hashlib.sha256).hexdigest()
        assert headers[b"X-Hub-Signature-256"] == b"sha256=" + expected.encode()
        assert int(headers[b"Content-Length"]) == len(body)
        assert json.loads(body)["object"] == "whatsapp_business_account"


def test_a_large_request_has_as_many_different_messages() -> None:
    body = json.loads(payloads.large_request(7, 50).partition(b"\r\n\r\n")[2])

    assert len({message["id"] for message in body["entry"][0]["changes"][0]["value"]["messages"]}) == 50


def test_only_a_200_counts_as_an_answer_and_a_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first connection gets no answer, and the other three."""
    monkeypatch.setattr(load, "ANSWER_SECONDS", 0.0)
    answers, open_, all_closed = iter([[], [200, 202, 500]]), [1, 2], asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for status in next(answers):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        open_.pop()
        if not open_:
            all_closed.set()

    async def run() -> tuple[int, int, dict[str, int]]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            spec = load.Spec(port, "message", tag=1, connections=2, seconds=2.0, most=4)
            client = load.Load(spec, [b"POST / HTTP/1.1\r\n\r\n"] * 4)
            await client.connect()
            result = await client.run()
            assert 0 < result.p50 <= result.p99
            found = (result.sent, result.ok, dict(result.statuses))
            await all_closed.wait()
            return found

    assert asyncio.run(run()) == (4, 1, {"202": 1, "500": 1, "no answer": 1})


def test_processor_time_and_memory_of_this_process_are_read() -> None:
    import os

    before = cpu_seconds(os.getpid())
    random.Random(1).randbytes(5_000_000)

    assert os.getpid() in tree(os.getpid())
    assert cpu_seconds(os.getpid()) > before
    assert memory_bytes(os.getpid()) > 2**20


# ---- the page and the plot


def document(**more: Any) -> dict[str, Any]:
    return {
        "date": "2026-11-29 08:00 UTC",
        "commit": "0123456789",
        "machine": {"processor": "a processor", "cores": 2, "python": "3.11.7"},
        "options": {"rounds": 3, "seconds": 1.0, "rows": [*ROWS]},
        "figures": {
            key: {
                server: {"median": it.median, "least": it.least, "most": it.most, "ratio": it.ratio}
                for server, it in found.items()
            }
            for key, found in results.summaries_of(SAMPLES).items()
        },
        "stores": {},
        **more,
    }


def test_the_plot_has_a_bar_for_each_ratio_but_that_of_stock() -> None:
    drawn = ElementTree.fromstring(draw(document()))

    titles = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["product: 0.233", "product: 0.5"]


def test_the_plot_of_a_run_without_ratios_is_empty_and_valid() -> None:
    drawn = ElementTree.fromstring(draw(document(figures={})))

    assert not list(drawn.iter("{http://www.w3.org/2000/svg}title"))


def test_the_page_shows_the_run_between_its_marks_and_keeps_the_rest() -> None:
    path = page.ROOT / "bench" / "results" / "a.json"
    before = f"head\n{page.BEGIN}yesterday\n{page.END}tail\n"

    shown = page.replaced(before, "\n".join(page.lines(document(), path)))

    assert shown.startswith(f"head\n{page.BEGIN}\nRun of 2026-11-29 08:00 UTC")
    assert "| figure | product | stock |" in shown
    assert "yesterday" not in shown
    assert shown.endswith(f"{page.END}tail\n")
    assert page.replaced(shown, "x").count(page.BEGIN) == 1


def test_the_page_shows_a_recorded_run_exactly() -> None:
    text = page.PAGE.read_text()
    named = re.search(r"^samples: `(bench/results/[\w.-]+\.json)`\.$", text, re.M)

    if named is None:
        assert "No run has been recorded yet." in text
    else:
        assert page.replaced(text, page.part(page.ROOT / named[1])) == text
        assert page.PLOT.read_text() == draw(json.loads((page.ROOT / named[1]).read_text()))


def test_the_tables_of_the_local_stack_show_medians_by_store_and_condition() -> None:
    sample = {"p50": 1.0, "p95": 2.0, "p99": 3.0, "rate": 40.0}
    stores = {"redis": {"normal": [sample, {**sample, "p50": 3.0}, {**sample, "p50": 2.0}]}}

    assert [line.split() for line in emulators.table(stores)][1:] == [
        ["redis,", "normal", "2.00", "2.00", "3.00", "40"]
    ]
    assert list(emulators.markdown(stores))[2] == "| redis, normal | 2.00 | 2.00 | 3.00 | 40 |"


def test_documented_figures_and_servers_are_those_of_the_code() -> None:
    text = page.PAGE.read_text()
    rows = re.findall(r"^\| ([^|]+?) \|", text, re.M)

    assert [name for name in SERVERS if name not in rows] == []
    assert {label(figure) for figure in FIGURES} <= set(rows)


def label(figure: Figure) -> str:
    """Without what tells the figures of one row of the page apart."""
    if figure.row == "large":
        return "a POST of 1,000 messages"
    if figure.row == "memory":
        return "memory"
    return re.split(r", | \(", figure.label)[0]


def test_options_are_what_a_run_needs() -> None:
    assert parse(["--json", "/tmp/x.json", "--rounds", "2"]) == Options(
        rounds=2,
        seconds=3.0,
        rows=ROWS,
        servers=tuple(SERVERS),
        against=("fakes",),
        stores=("sqlite", "redis", "firestore"),
        json=Path("/tmp/x.json"),
        python=parse([]).python,
    )


# ---- the profile


def profile(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bench.profile", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_profile_shares_the_time_of_a_message_among_the_areas() -> None:
    ended = profile("--rounds", "2", "--messages", "300")

    assert (ended.returncode, ended.stderr) == (0, "")
    first, second, _, *areas = ended.stdout.splitlines()
    assert first == "16 connections, 300 messages, 2 rounds"
    middle = int(re.fullmatch(r"(\d+) µs of processor time for each message \[\d+-\d+\]", second)[1])  # type: ignore[index]
    shares = [re.fullmatch(r" *([\d.]+)% +([\d.]+) µs  (.+)", line) for line in areas]
    assert sum(float(share[1]) for share in shares if share) == pytest.approx(100, abs=1)
    assert sum(float(share[2]) for share in shares if share) == pytest.approx(middle, rel=0.05)
    assert {share[3] for share in shares if share} <= {area for _, area in AREAS} | {"event loop"}
    assert len(shares) >= 5


@pytest.mark.parametrize("option", ["--rounds", "--messages", "--connections"])
def test_profile_refuses_a_number_below_one(option: str) -> None:
    ended = profile(option, "0")

    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == "python -m bench.profile: error: each number must be at least 1"


def test_profile_counts_time_for_the_innermost_part_of_ours() -> None:
    assert area_of(None) == "event loop"
    assert area_of(sys._getframe()) == "event loop"  # a test is no part of the service
    found: list[str] = []

    class Told(dict[str, Any]):
        def get(self, *_: Any) -> None:
            found.append(area_of(sys._getframe()))

    fields.customer_ids(Told(), {})
    assert set(found) == {"signature and parse"}
