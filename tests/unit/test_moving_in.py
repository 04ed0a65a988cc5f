"""docs/moving-in.md: what it says of the code, of libraries and of settings is so."""

import re
from pathlib import Path
from typing import get_args

from services import health
from shared import config
from shared.pipeline import accept
from shared.queues import cloud_tasks_intake
from shared.stores.firestore import intake

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "moving-in.md").read_text()
LOCKS = "".join((ROOT / name).read_text() for name in ("requirements.lock", "requirements-dev.lock"))
PROGRAMS = [path.read_text() for folder in ("shared", "services") for path in (ROOT / folder).rglob("*.py")]


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ")[0]


def test_deduplication_has_the_three_answers_of_the_code() -> None:
    answers = re.findall(r"^\| `(\w+)` \|", section("Deduplication with three results"), re.M)
    assert set(answers) == {answer.__name__ for answer in get_args(accept.Mark)}


def test_project_uses_no_sql_library_no_redis_stream_and_no_hiredis() -> None:
    for library in ("hiredis", "sqlalchemy", "alembic", "psycopg", "celery", "rq"):
        assert not re.search(rf"^{library}[=\[-]", LOCKS, re.M | re.I), library
    scripts = (ROOT / "shared" / "stores" / "redis" / "scripts.py").read_text()
    assert not re.search(r"\bX(?:ADD|TRIM|READ|READGROUP|ACK)\b", scripts, re.I)
    assert not any(re.search(r"\bhiredis\b|\bxadd\b|\bxtrim\b|\bmaxlen=", program, re.I) for program in PROGRAMS)


def test_the_pool_of_the_webhook_has_the_bounds_of_the_code() -> None:
    said = section("One bounded pool in the webhook")
    assert f"makes up to {cloud_tasks_intake.IN_FLIGHT} at a time" in said
    assert intake.IN_FLIGHT.prompt == 1
    late = f"up to {intake.IN_FLIGHT.most} if some take longer than {intake.IN_FLIGHT.late} s"
    assert f"one batch of records at a time, {late}" in said
    for name in ("WEBHOOK_CONCURRENCY", "THREADS"):
        (setting,) = (setting for setting in config.SETTINGS if setting.name == name)
        assert f"`{name}` ({setting.always})" in said


def test_page_has_the_status_values_of_the_health_routes() -> None:
    said = section("Health routes")
    words = {health.livez()[0]["status"], health.livez(exhausted=True)[0]["status"]}
    source = Path(str(health.__file__)).read_text()
    words |= {word for word in ("degraded", "connected", "unavailable") if f'"{word}"' in source}
    table = [line for line in said.splitlines() if line.startswith("| `/")]
    found = {word for line in table for word in re.findall(r"`([a-z]+)`", line.split("|")[3])}
    assert found == words
    assert "unhealthy" not in source


def test_every_variable_that_the_page_names_is_a_setting() -> None:
    named = set(re.findall(r"`([A-Z][A-Z_]{4,})`", PAGE))
    assert named <= {setting.name for setting in config.SETTINGS}
    assert len(named) >= 4
    rows = [line for line in section("Variables without a counterpart").splitlines() if line.startswith("| ")][1:]
    assert all("nothing" in row or "`DEDUPE_TTL_DAYS`" in row for row in rows)
