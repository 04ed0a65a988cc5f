"""docs/deploy.md, held to what it speaks of: secrets, roles, counts, prices, files."""

import re

import pytest
from tree import ROOT

from shared.config import SETTINGS

PAGE = (ROOT / "docs" / "deploy.md").read_text()
STORES = (ROOT / "docs" / "stores.md").read_text()
TERRAFORM = ROOT / "infra" / "terraform"
MAKEFILE = (ROOT / "Makefile").read_text()
A_MONTH = {"1 k": 1e3, "100 k": 1e5, "10 M": 1e7}


def table(head: str) -> list[list[str]]:
    """The rows of the table that begins so."""
    lines = PAGE[PAGE.index(f"\n| {head}") :].strip().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines[: next((i for i, x in enumerate(lines) if not x), None)]]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*\.?\d*", text)]


# ---- secrets


def test_every_secret_has_its_rotation() -> None:
    assert {row[0].strip("`") for row in table("secret |")} == {one.name for one in SETTINGS if one.secret}


def test_the_list_of_a_secret_is_told_by_how_the_code_reads_it() -> None:
    lists = {one.name for one in SETTINGS if one.secret and "list" in one.meaning}
    assert {row[0].strip("`") for row in table("secret |") if "new,old" in row[1]} == lists


def test_every_secret_that_must_be_there_is_given_a_first_version() -> None:
    section = PAGE[PAGE.index("## 4.") : PAGE.index("## 5.")]
    given = set(re.findall(r"gcloud secrets versions add (\w+)", section))
    assert given == {one.name for one in SETTINGS if one.secret} - {"REDIS_URL"}


# ---- the build's account


def test_the_roles_of_the_build_are_those_that_terraform_gives_it() -> None:
    given = set()
    for path in TERRAFORM.rglob("*.tf"):
        for block in re.findall(r'resource "\w+_iam_member" "\w+" \{.*?^\}', path.read_text(), re.M | re.S):
            if "local.build\n" in block or "var.build_account" in block:
                given |= set(re.findall(r'"(roles/[\w.]+)"', block))
    assert {row[0].strip("`") for row in table("role |")} == given


# ---- what it costs


def test_the_counts_are_those_that_the_tests_of_the_stores_have_counted() -> None:
    counted = re.search(r"\| one inbound message and one reply \|.*?\| (\d+) \| (\d+):", STORES)
    assert counted
    rows = {row[0].partition(":")[2].strip(): row[1] for row in table("for each message")}
    assert rows["document writes"].startswith(f"{counted[1]} + 3 receipts")
    assert rows["document reads"] == counted[2]


@pytest.mark.parametrize("row", table("for each message"), ids=lambda row: row[0])
def test_a_price_is_the_count_times_what_one_costs(row: list[str]) -> None:
    _, count, price, total = row
    times, (each, *per) = numbers(count.partition("=")[2] or count)[0], numbers(price)
    units = {"per 100,000": 1e5, "per million": 1e6, "per million seconds": 1e6, "per GB-month": 1, "per GB": 1}
    unit = units[price.partition(" ")[2]]
    many = {"GB-months": 1e3, "KB": 1e6 / 1e6}.get(count.split()[1] if " " in count else "", 1e6)
    assert float(total) == pytest.approx(times * many * each / unit, abs=0.006), per


def test_a_month_is_its_messages_its_sweeps_and_its_uptime_checks() -> None:
    a_million = sum(float(row[3]) for row in table("for each message"))
    messages, sweep, uptime, together, _ = table("a month")
    times, reads, seconds = numbers(sweep[0])
    sweeps = times * (reads * 0.03 / 1e5 + 0.40 / 1e6 + seconds * 25.25 / 1e6)
    times, calls, seconds = numbers(uptime[0])
    checks = times * (0.03 / 1e5 + calls * 0.40 / 1e6 + 0.40 / 1e6 + seconds * 25.25 / 1e6)
    for at, count in enumerate(A_MONTH.values(), 1):
        assert float(messages[at]) == pytest.approx(a_million * count / 1e6, abs=0.006)
        assert float(sweep[at]) == pytest.approx(sweeps, abs=0.006)
        assert float(uptime[at]) == pytest.approx(checks, abs=0.006)
        assert float(together[at].strip("*")) == pytest.approx(a_million * count / 1e6 + sweeps + checks, abs=0.006)


def test_an_instance_that_is_always_there_costs_its_idle_time() -> None:
    idle = 30 * 86400 * (0.0000025 + 0.5 * 0.0000025)
    assert [numbers(cell)[0] for cell in table("a month")[4][1:]] == pytest.approx([idle] * 3, abs=0.006)


# ---- the rest


def test_what_the_page_leads_to_is_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
    for name in re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", PAGE, re.M):
        assert re.search(rf"^{''.join(name)}:", MAKEFILE, re.M), name


def test_meta_is_asked_for_fields_that_pombo_knows() -> None:
    section = PAGE[PAGE.index("## 7.") : PAGE.index("## 8.")]
    fields = re.search(r"Subscribe to \*\*messages\*\*[^:]*:\s([\w,\s]+) \(", section)
    assert fields
    known = {path.stem for path in (ROOT / "examples" / "requests").glob("*.json")}
    asked = set(re.split(r",\s+", fields[1]))
    assert len(asked) > 5
    assert asked <= known
