"""The benchmark of the API service: its requests, the proof of its work, its ratios, and its part of the page."""

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import api, environments, load, page, payloads, results
from bench.errors import BenchError
from bench.figures import API_FIGURES
from bench.measure import Harness
from bench.options import STORES, parse
from bench.proof import check_answers
from services.api.message_types import IdempotencyHeaders, NewMessage
from shared import config
from shared.bootstrap.backends import build_store
from shared.domain.record import Kind
from shared.domain.tenants import Scope
from shared.operations.keys import is_right, parse_key
from shared.pipeline.ports import Store
from shared.tenants.entries import key_name, read_key
from tests.support.builders import pending

SAMPLES = {
    "api": {"api_rate": [300.0, 200.0, 250.0], "api_cpu_16": [1500.0]},
    "bare": {"api_rate": [500.0], "api_cpu_16": [1000.0]},
}
KEYS = ["pombo_a", "pombo_b"]


def parsed(request: bytes) -> tuple[dict[str, str], Any]:
    head, _, body = request.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert int(headers["Content-Length"]) == len(body)
    return headers, json.loads(body)


def test_each_request_sends_a_new_message_that_the_api_takes_with_the_keys_in_turn() -> None:
    sent = [parsed(it) for tag in (1, 2) for it in payloads.api_requests(tag, 3, KEYS)]

    assert len({body["text"] for _, body in sent}) == len({head["Idempotency-Key"] for head, _ in sent}) == 6
    assert [head["Authorization"][-1] for head, _ in sent] == ["a", "b", "a"] * 2
    for head, body in sent:
        NewMessage.model_validate(body)
        IdempotencyHeaders.model_validate({"Idempotency-Key": head["Idempotency-Key"]})


def test_load_of_the_api_sends_its_requests_and_counts_answers_of_202() -> None:
    heads, closed = list[bytes](), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for status in (202, 200):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(int(heads[-1].partition(b"Content-Length: ")[2].split()[0]))
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        closed.set()

    async def run() -> load.Result:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            spec = load.Spec(port, "api", 1, 1, 2.0, most=2, keys=KEYS, status=202)
            result = await load.send_many(spec)
            await closed.wait()
            return result

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(load, "announce", lambda: None)
        result = asyncio.run(run())

    assert (result.sent, result.ok, dict(result.statuses)) == (2, 1, {"200": 1})
    assert all(head.startswith(b"POST /v1/messages ") for head in heads)


def test_answer_of_another_status_than_202_ends_the_run() -> None:
    check_answers("api", 3, 3, {}, api.ACCEPTED)
    with pytest.raises(BenchError, match=r"api answered 2 of 3 requests with 202; the others: 1 × 429"):
        check_answers("api", 3, 2, {"429": 1}, api.ACCEPTED)


# ---- the proof


def environment(tmp_path: Path) -> dict[str, str]:
    return {"STORE": "sqlite", "SQLITE_PATH": str(tmp_path / "pombo.sqlite")}


@pytest.mark.parametrize(
    ("stored", "queued", "fault"),
    [(2, 2, None), (1, 2, "2 documents were due"), (2, 1, "2 tasks were due"), (3, 3, "did more than its work")],
)
def test_each_accepted_message_must_be_stored_and_queued(
    stored: int, queued: int, fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, tasks, specs = environment(tmp_path), [5], list[dict[str, Any]]()
    store: Store = build_store(config.load(given, config.CLI))
    store.create(pending(Kind.OUTBOUND, key="0" * 40))

    def run_load(spec: dict[str, Any], *_: Any) -> dict[str, Any]:
        specs.append(spec)
        tasks.append(tasks[-1] + queued)
        for number in range(stored):
            store.create(pending(Kind.OUTBOUND, key=f"{number + 1:040x}"))
        return {"sent": 2, "ok": 2, "statuses": {}, "server_cpu": 0.5, "seconds": 4.0}

    monkeypatch.setattr(api, "run_load", run_load)
    fakes: Any = SimpleNamespace(pid=1, counts=lambda: {"created": 99, "tasks": tasks[-1], "unknown": {}})
    harness = Harness(SimpleNamespace(), fakes, None, None, 1.0, frozenset())  # type: ignore[arg-type]
    sample = api._Sample("api", "sqlite", given, harness, 1, 8, KEYS)

    if fault:
        with pytest.raises(BenchError, match=fault):
            sample.load(16, 3.0)
        return
    result = sample.load(16, 3.0)

    assert (result["cpu"], result["rate"]) == (0.25, 0.5)
    (spec,) = specs
    assert (spec["keys"], spec["status"], spec["connections"], spec["seconds"]) == (KEYS, 202, 16, 3.0)
    assert spec["most"] <= 50 * api.KEYS * spec["seconds"], "the keys allow no more"


def test_keys_of_the_load_are_in_the_servers_store_and_may_send_for_tenant_default(tmp_path: Path) -> None:
    given = environment(tmp_path)

    keys = api._new_keys(given)

    assert len(set(keys)) == api.KEYS
    registry = build_store(config.load(given, config.CLI))
    for text in keys[:2]:
        presented = parse_key(text)
        assert presented is not None
        (entry,) = registry.entries([key_name(presented.id)])
        assert entry is not None
        assert is_right(read_key(entry), presented)
        assert (read_key(entry).tenant, read_key(entry).scopes) == ("default", {Scope.SEND})


# ---- the options


def test_the_api_is_measured_on_sqlite_unless_stores_are_named() -> None:
    assert parse(["--against", "api"]).stores == ("sqlite",)
    assert parse(["--against", "api", "--stores", "firestore,redis"]).stores == ("redis", "firestore")
    assert parse(["--against", "api,emulators"]).stores == parse(["--against", "emulators"]).stores == STORES


# ---- the table and the page


def test_each_figure_of_the_api_has_a_ratio_to_the_bare_app_of_the_same_store() -> None:
    found = list(api.lines({"sqlite": SAMPLES}))

    assert found[0] == "POST /v1/messages, sqlite"
    assert found[1].split() == ["server", "median", "[min-max]", "of", "bare"]
    rate, _, cpu, *_ = (re.split(r"\s{2,}", line) for line in found[2:])
    assert rate == ["requests/s on one core, 16 connections (1/s)", "api", "250", "[200-300]", "0.50"]
    assert cpu == ["CPU per message, 16 connections (µs)", "api", "1,500", "[1,500-1,500]", "1.50"]


def test_page_has_a_row_for_each_store_and_figure() -> None:
    head, _, *rows = api.markdown({"redis": SAMPLES})

    assert head == "| store | POST /v1/messages | api | bare |"
    assert len(rows) == len(API_FIGURES)
    assert rows[0] == (
        "| redis | requests/s on one core, 16 connections, 1/s | 250 [200-300] **0.50** | 500 [500-500] **1.00** |"
    )
    assert rows[2].endswith("| – | – |")


def test_results_hold_the_samples_of_the_api_and_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_versions", lambda python: {"of": python.parts[-4]})
    monkeypatch.setattr(results, "_python", lambda _: "3.11.7")
    webhook = environments.located(environments.WEBHOOK)

    written = results.document(parse([]), webhook, {}, {}, {}, {"sqlite": SAMPLES})

    assert written["api"] == {"sqlite": SAMPLES}
    assert written["versions"]["api"] == {"of": "api"}
    assert written["versions"]["product"] == {"of": "product"}
    assert "api" not in results.document(parse([]), webhook, {}, {}, {}, {})["versions"]


def test_run_of_the_api_alone_replaces_its_own_part_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"date": "2026-11-30 08:00 UTC", "commit": "0123456789", "figures": {}, "stores": {}, "options": {}}
    run |= {"machine": {"processor": "a processor", "cores": 2, "python": "3.11.7"}, "api": {"sqlite": SAMPLES}}
    run["options"] = {"rounds": 3, "seconds": 1.0, "rows": []}
    path, shown, plot = tmp_path / "results.json", tmp_path / "page.md", tmp_path / "plot.svg"
    path.write_text(json.dumps(run))
    others = f"{page.BEGIN}theirs\n{page.END}"
    shown.write_text(f"head\n{others}{page.API_BEGIN}yesterday\n{page.API_END}tail\n")
    monkeypatch.setattr(page, "PAGE", shown)
    monkeypatch.setattr(page, "PLOT", plot)
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["bench.page", str(path)])

    page.main()

    text = shown.read_text()
    assert text.startswith(f"head\n{others}{page.API_BEGIN}\nRun of 2026-11-30 08:00 UTC")
    assert text.endswith(f"{page.API_END}tail\n")
    assert "| sqlite | CPU per message, 1 connection, µs |" in text
    assert "yesterday" not in text
    assert not plot.exists()


def test_page_shows_a_recorded_run_of_the_api_exactly() -> None:
    text = page.PAGE.read_text()
    shown = text.partition(page.API_BEGIN)[2].partition(page.API_END)[0]
    named = re.search(r"^samples: `(bench/results/[\w.-]+\.json)`\.$", shown, re.M)

    if named is None:
        assert "No run has been recorded yet." in shown
    else:
        part = page.api_part(page.ROOT / named[1])
        assert page.replaced(text, part, page.API_BEGIN, page.API_END) == text


def test_documented_figures_and_servers_of_the_api_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| ([^|]+?) \|", page.PAGE.read_text(), re.M)

    assert {*api.SERVERS} <= set(rows)
    assert {figure.label.split(",")[0] for figure in API_FIGURES} <= set(rows)
