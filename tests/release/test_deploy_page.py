"""docs/deploy.md, held to what it speaks of: secrets, roles, counts, prices, files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infra.release import check_project, one_message, place
from infra.release.metrics import DELAY
from infra.release.rollout import FEW, HOLD, MOST_FAILED, MOST_TIMES, STEPS
from shared.config import SETTINGS
from tests.support.log_entries import ENVELOPE, REQUEST, kilobytes
from tests.support.tree import ROOT, SERVICES

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


def test_lists_of_secrets_on_the_page_match_the_code() -> None:
    lists = {one.name for one in SETTINGS if one.secret and "list" in one.meaning}
    assert {row[0].strip("`") for row in table("secret |") if "new,old" in row[1]} == lists


def test_every_secret_that_must_be_there_is_given_a_first_version() -> None:
    section = PAGE[PAGE.index("## 4.") : PAGE.index("## 5.")]
    given = set(re.findall(r"gcloud secrets versions add (\w+)", section))
    assert given == {one.name for one in SETTINGS if one.secret} - {"REDIS_URL"}


# ---- the accounts of a release


ACCOUNTS = {
    "pombo-build": ("local.build\n",),
    "pombo-deploy": ("local.deploy\n", "var.deploy_account"),
    "pombo-tools": ("local.tools\n",),
}


@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_roles_of_an_account_are_those_that_terraform_gives_it(account: str) -> None:
    given = set()
    for path in TERRAFORM.rglob("*.tf"):
        for block in re.findall(r'resource "\w+_iam_member" "\w+" \{.*?^\}', path.read_text(), re.M | re.S):
            short = account.removeprefix("pombo-")
            if any(words in block for words in ACCOUNTS[account]) or re.search(rf"{short} = local\.{short}\b", block):
                given |= set(re.findall(r'"(roles/[\w.]+)"', block))
                given |= {role_id(name) for name in re.findall(r"custom_role\.(\w+)\.role_id", block)}
    assert {row[0].strip("`") for row in table(f"role of `{account}` |")} == given


def role_id(resource: str) -> str:
    text = (TERRAFORM / "bootstrap" / "deploy.tf").read_text()
    found = re.search(rf'custom_role" "{resource}" \{{.*?role_id += "(\w+)"', text, re.S)
    assert found
    return found[1]


def test_the_page_deploys_to_production_by_approval_alone() -> None:
    section = PAGE[PAGE.index("## 6.") : PAGE.index("## 7.")].replace("\\\n", " ")
    (trigger,) = re.findall(r"^gcloud builds triggers create manual .*$", section, re.M)
    assert "--require-approval" in trigger
    assert "--build-config=cloudbuild-deploy.yaml" in trigger
    assert "pombo-deploy@" in trigger
    (pushed,) = re.findall(r"^gcloud builds triggers create github .*$", section, re.M)
    assert "pombo-build@" in pushed
    assert "--build-config=cloudbuild.yaml" in pushed
    assert "gcloud alpha builds approve" in section


def test_the_page_gives_the_numbers_of_the_rollout() -> None:
    section = " ".join(PAGE[PAGE.index("## 6.") : PAGE.index("## 7.")].split())
    first, second = STEPS
    for words in (
        f"{first} %, then {second} %, then all",
        {5: "first five minutes"}[HOLD / 60],
        {4: "about four minutes later"}[DELAY / 60],
        f"more than {MOST_FAILED:.0%}".replace("%", " %"),
        f"Under {FEW} requests",
    ):
        assert words in section, words
    assert MOST_TIMES == 2
    assert section.count("more than twice the old revision's") == 2


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
    many = 1e3 if "GB-months" in count else 1 if count.endswith(" KB") else 1e6
    assert float(total) == pytest.approx(times * many * each / unit, abs=0.006), per


def test_a_month_is_its_messages_its_sweeps_and_its_uptime_checks() -> None:
    a_million = sum(float(row[3]) for row in table("for each message"))
    messages, sweep, uptime, together, *_ = table("a month")
    times, reads, seconds, logged = numbers(sweep[0])
    sweeps = times * (reads * 0.03 / 1e5 + 0.40 / 1e6 + seconds * 25.25 / 1e6 + logged * 0.50 / 1e6)
    times, calls, seconds, logged = numbers(uptime[0])
    checks = times * (0.03 / 1e5 + calls * 0.40 / 1e6 + 0.40 / 1e6 + seconds * 25.25 / 1e6 + logged * 0.50 / 1e6)
    for at, count in enumerate(A_MONTH.values(), 1):
        assert float(messages[at]) == pytest.approx(a_million * count / 1e6, abs=0.006)
        assert float(sweep[at]) == pytest.approx(sweeps, abs=0.006)
        assert float(uptime[at]) == pytest.approx(checks, abs=0.006)
        assert float(together[at].strip("*")) == pytest.approx(a_million * count / 1e6 + sweeps + checks, abs=0.006)


def test_prod_costs_the_instances_that_its_example_keeps_besides() -> None:
    *_, together, instance, prod, _, _ = table("a month")
    idle = 30 * 86400 * (0.0000025 + 0.5 * 0.0000025)
    assert [numbers(cell)[0] for cell in instance[1:]] == pytest.approx([idle] * 3, abs=0.006)
    example = (TERRAFORM / "environments" / "prod" / "example.tfvars").read_text()
    kept = re.search(r"^min_instances = \{ webhook = (\d+) \}$", example, re.M)
    assert kept
    for scaled, always in zip(together[1:], prod[1:], strict=True):
        assert numbers(always)[0] == pytest.approx(numbers(scaled)[0] + int(kept[1]) * idle, abs=0.006)
    assert "min_instances" not in (TERRAFORM / "environments" / "staging" / "example.tfvars").read_text()


def test_the_alerts_cost_each_condition_that_there_is() -> None:
    alerts = (TERRAFORM / "modules" / "monitoring" / "alerts.tf").read_text()
    listed = alerts.partition("  alerts = {")[2].partition("\n  }\n")[0]
    down = alerts.partition("  down = {")[2].partition("\n  }\n")[0]
    assert 'resource "google_monitoring_alert_policy" "down"' in alerts
    conditions = len(re.findall(r"^    \w+ = \{$", listed + down, re.M))
    *_, prod, (what, *months), whole = table("a month")
    assert numbers(what) == [conditions, 1.5]
    assert [numbers(cell)[0] for cell in months] == [conditions * 1.5] * 3
    for without, together in zip(prod[1:], whole[1:], strict=True):
        assert numbers(together)[0] == pytest.approx(numbers(without)[0] + conditions * 1.5, abs=0.006)


def test_log_cost_of_a_message_counts_lines_envelopes_and_requests() -> None:
    (row,) = [row for row in table("for each message") if row[0].startswith("Cloud Logging")]
    lines, around, requests, each = numbers(row[0])
    assert (around, each) == (kilobytes(ENVELOPE), kilobytes(REQUEST))
    (served,) = [row[1] for row in table("for each message") if row[0].endswith("requests")]
    assert requests == numbers(served)[-1]
    of_lines, of_envelopes, of_requests, together = numbers(row[1])
    assert f"{lines:g} log lines of {of_lines:g} KB together" in " ".join(PAGE.split())
    assert (of_envelopes, of_requests) == pytest.approx((lines * around, requests * each))
    assert together == pytest.approx(of_lines + of_envelopes + of_requests)
    sweep, uptime = table("a month")[1:3]
    assert numbers(uptime[0])[-1] == each, "an uptime check is a request"
    assert numbers(sweep[0])[-1] >= each + 2 * around, "a sweep is a request and two lines"


def test_idle_cost_of_prod_is_stated_first() -> None:
    _, sweep, uptime, _, instance, _, alerts, _ = table("a month")
    first = section("What it costs").strip().partition("\n\n")[0]
    idle = numbers(instance[1])[0]
    fixed = sum(numbers(row[1])[0] for row in (sweep, uptime))
    a_million = sum(float(row[3]) for row in table("for each message"))
    for sum_of_money in (idle + fixed, idle, fixed, numbers(alerts[1])[0], a_million):
        assert f"{sum_of_money:.2f}" in first
    about = re.search(
        r"about (\d+) dollars a month for prod before the first message, (\d+) of them for alerts",
        " ".join(PAGE.split()),
    )
    assert about
    assert float(about[1]) == pytest.approx(idle + fixed + numbers(alerts[1])[0], abs=1)
    assert float(about[2]) == numbers(alerts[1])[0]


# ---- who may do it

ROLE_OF = {
    "google_artifact_registry_": "artifactregistry.admin",
    "google_billing_budget": "billing.costsManager",
    "google_cloud_run_": "run.admin",
    "google_cloud_scheduler_": "cloudscheduler.admin",
    "google_cloud_tasks_": "cloudtasks.admin",
    "google_compute_": "compute.networkAdmin",
    "google_firestore_": "datastore.owner",
    "google_logging_": "logging.configWriter",
    "google_monitoring_": "monitoring.admin",
    "google_project_iam_custom_role": "iam.roleAdmin",
    "google_project_iam_audit_config": "resourcemanager.projectIamAdmin",
    "google_project_iam_member": "resourcemanager.projectIamAdmin",
    "google_project_service": "serviceusage.serviceUsageAdmin",
    "google_redis_": "redis.admin",
    "google_secret_manager_": "secretmanager.admin",
    "google_service_account": "iam.serviceAccountAdmin",
    "google_storage_": "storage.admin",
}
"""Which role makes which resources, and who may use them."""


def test_terraform_user_has_exactly_one_role_for_each_kind_of_resource() -> None:
    kinds = {
        kind for path in TERRAFORM.rglob("*.tf") for kind in re.findall(r'^resource "(\w+)"', path.read_text(), re.M)
    }
    assert [kind for kind in sorted(kinds) if not kind.startswith(tuple(ROLE_OF))] == []
    needed = {role for prefix, role in ROLE_OF.items() if any(kind.startswith(prefix) for kind in kinds)}
    rows = table("to apply")
    named = [role for row in rows for role in re.findall(r"`roles/([\w.]+)`", row[0])]
    from_source = {"run.sourceDeveloper", "serviceusage.serviceUsageConsumer"}
    assert sorted(named) == sorted({*needed, "iam.serviceAccountUser", *from_source})
    given = re.search(r"^for ROLE in ([\w.\s\\]+?); do$", PAGE, re.M)
    assert given
    optional = {role for row in rows if "only with" in row[1] for role in re.findall(r"roles/([\w.]+)", row[0])}
    assert given[1].replace("\\", "").split() == [role for role in named if role not in optional]


def test_page_gives_a_build_submitter_exactly_the_needed_roles() -> None:
    (operates,) = [part for part in PAGE.split("\n\n") if part.startswith("To operate it")]
    to_submit = operates.partition("`roles/cloudbuild.builds.editor`")[2].partition(" to submit one")[0]
    roles = set(re.findall(r"`roles/([\w.]+)`", to_submit))
    assert roles == {
        "serviceusage.serviceUsageConsumer",
        "storage.objectAdmin",
        "storage.bucketViewer",
        "iam.serviceAccountUser",
    }


def test_pages_name_the_extra_permissions_of_the_deploy_role() -> None:
    """roles/run.developer is more than a deployment needs."""
    assert 'role     = "roles/run.developer"' in (TERRAFORM / "modules" / "run" / "main.tf").read_text()
    security = " ".join((ROOT / "docs" / "security.md").read_text().split())
    assert (
        "so may `pombo-deploy`, whose `roles/run.developer` on the three services holds `run.routes.invoke`" in security
    )
    row = next(
        line for line in (ROOT / "docs" / "security.md").read_text().splitlines() if "| `pombo-deploy` |" in line
    )
    assert "invoke them" in row
    assert "SSH" in row


def test_accounts_that_can_forge_an_alert_are_named() -> None:
    security = " ".join((ROOT / "docs" / "security.md").read_text().split())
    for account in ACCOUNTS:
        roles = {row[0].strip("`") for row in table(f"role of `{account}` |")}
        assert "roles/logging.logWriter" in roles
    assert (
        "`pombo-build`, `pombo-deploy` and `pombo-tools` have `roles/logging.logWriter`, and can write lines"
        in security
    )


def test_pages_name_who_can_expire_a_record() -> None:
    """The roles hold no deletion; the policy of the database deletes what is past its time."""
    rows = [row for row in (ROOT / "docs" / "security.md").read_text().splitlines() if row.startswith("| records |")]
    assert len(rows) == len(SERVICES)
    assert sum("may call no deletion" in row for row in rows) == len(SERVICES) - 1, "the API may"
    assert all("a past `expire_at` is deleted by Firestore's TTL" in row for row in rows)


def test_no_command_of_the_page_has_a_secret_among_its_arguments() -> None:
    """Every user of the machine sees them."""
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.S)).replace("\\\n", " ")
    for line in blocks.splitlines():
        arguments = re.sub(r'<<<"[^"]*"', "", line).replace("printf %s", "builtin")
        if not arguments.startswith(("builtin", "read ")) and "&& builtin" not in arguments:
            assert not re.search(r"\$\{?(TOKEN|VALUE|API_KEY)\b", arguments), line
    assert blocks.count("-H @- ") == 4
    assert blocks.count('<<<"Authorization: Bearer $TOKEN"') == 2
    assert blocks.count('<<<"Authorization: Bearer $API_KEY"') == 2


def test_policy_against_public_services_is_named_before_the_project_is_created() -> None:
    first = PAGE.partition("\n## 1. ")[2].partition("\n## 2. ")[0]
    assert first.index("run.managed.requireInvokerIam") < first.index("gcloud projects create")


def test_contradictions_in_googles_pages_are_listed_as_untested() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| where tasks go |"))
    for word in ("CreateTask", "creating-http-target-tasks", "configuring-queues", "choose-task-creation-method"):
        assert f"`{word}`" in row


def test_call_refused_by_iam_is_in_the_table_of_the_first_message() -> None:
    row = next(
        line for line in PAGE.splitlines() if line.startswith("| a POST at `pombo-internal` with status 401 or 403")
    )
    for word in ("IAM", "gcloud tasks queues describe inbound", "httpTarget.oidcToken", "terraform apply"):
        assert word in row


def test_the_page_names_both_buckets_from_which_a_build_is_read() -> None:
    row = next(row for row in table("role of `pombo-build` |") if row[0] == "`roles/storage.objectViewer`")
    readers = re.findall(
        r'_iam_member" "(\w+)" \{\s*bucket = google_storage_bucket\.(\w+)\.name\s*role +=[^}]*local\.build\n',
        "".join(path.read_text() for path in (TERRAFORM / "bootstrap").glob("*.tf")),
    )
    assert {bucket for _, bucket in readers} == {"source", "run_sources"}
    assert "two buckets" in row[1]
    assert "-build-source" in row[1]
    assert "run-sources-" in row[1]


# ---- handlers


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_variables_that_the_page_gives_a_handler_are_those_that_terraform_takes() -> None:
    text = section("A handler's own variables and secrets")
    variables = (TERRAFORM / "environments" / "prod" / "variables.tf").read_text()
    assigned = re.findall(r"^(\w+) += [{[]", text, re.M)
    assert assigned == ["handler_variables", "handler_secrets"]
    assert [name for name in assigned if f'variable "{name}"' not in variables] == []
    assert 'variable "handler_secrets"' in (TERRAFORM / "bootstrap" / "variables.tf").read_text()
    assert set(re.findall(r'os\.environ\["(\w+)"\]', text)) == {"CLINIC_URL", "CLINIC_KEY"}


def test_a_team_that_keeps_its_handlers_in_a_copy_takes_updates_by_a_merge(tmp_path: Path) -> None:
    """The page's own blocks, against repositories on this machine."""
    begin, update = re.findall(r"```sh\n(.*?)```", section("Handlers in a repository of your own"), re.S)
    upstream, ours = tmp_path / "upstream", tmp_path / "ours.git"
    git(tmp_path, "init", "-q", "-b", "main", str(upstream))
    commit(upstream, "handlers/echo.py", "the first")
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(ours))

    shell(tmp_path, begin, UPSTREAM=str(upstream), OURS=str(ours))
    commit(tmp_path / "whatsapp", "handlers/mine.py", "our own")
    commit(upstream, "handlers/echo.py", "the second")
    shell(tmp_path / "whatsapp", update)

    handlers = tmp_path / "whatsapp" / "handlers"
    assert ((handlers / "echo.py").read_text(), (handlers / "mine.py").read_text()) == ("the second", "our own")
    shell(tmp_path / "whatsapp", "git push --quiet")
    assert "our own" in git(ours, "show", "main:handlers/mine.py")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A Team", "-c", "user.email=team@example.com")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    git(folder, "add", name)
    git(folder, "commit", "-q", "-m", text)


def shell(folder: Path, script: str, **settings: str) -> None:
    who = {f"GIT_{role}_{what}": "team@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **who, **settings}
    subprocess.run(["bash", "-ec", script], cwd=folder, env=environment, check=True, capture_output=True)


# ---- what it is worth


def test_page_opens_with_what_is_untested_and_what_that_means() -> None:
    opening = PAGE.partition("\n## ")[0]
    assert opening.split("\n")[2].startswith("**Not tried yet.** Nothing on this page has run against a real")
    for words in ("Take a day", "**staging** project", "(#what-has-not-been-tried)", "(#roles-short-of-owner)"):
        assert words in opening


# ---- the rest


def test_links_and_make_goals_of_the_page_exist() -> None:
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


# ---- the small way


def test_the_page_has_the_small_way_first_and_make_knows_it() -> None:
    first, second = re.findall(r"^## (.*)$", PAGE, re.M)[:2]
    assert (first, second) == ("One command", "1. The project")
    command = re.search(r"^make deploy PROJECT=[\w-]+ REGION=[\w-]+$", section("One command"), re.M)
    assert command
    done = subprocess.run(["make", "-n", *command[0].split()[1:]], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "infra.release.deploy" in done.stdout


def test_the_steps_that_the_small_way_takes_are_on_the_page() -> None:
    steps = {int(number) for row in table("it does |") for number in re.findall(r"\d", row[1])}
    assert steps == {1, 2, 4, 5, 6}
    assert {3, 7, 8} <= {int(number) for number in re.findall(r"\[step (\d)\]", section("One command"))}
    assert {int(it) for it in re.findall(r"^## (\d)\. ", PAGE, re.M)} == set(range(1, 9))


def test_the_options_that_the_small_way_names_are_there() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infra.release.deploy", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    for option in set(re.findall(r"--[a-z]+[a-z-]*", section("One command"))) - {"--source"}:
        assert option in done.stdout, option


def test_every_command_of_cloud_run_that_we_call_has_its_permissions_on_the_page() -> None:
    files = [*ROOT.glob("infra/release/*.py"), ROOT / "cloudbuild.yaml", ROOT / "docs" / "deploy.md"]
    text = "\n".join(path.read_text() for path in files)
    words = re.sub(r'[",()*\\]+', " ", text)
    verbs = r"(?:deploy|regions list|(?:services|revisions) (?:describe|list|update-traffic|update))"
    called = set(re.findall(rf"\brun +({verbs})\b", re.sub(r" +", " ", words)))
    named = {it for row in table("command or resource |") for it in re.findall(r"`gcloud run ([a-z -]+)`", row[0])}
    assert called == named
    assert {"run.services.setIamPolicy", "run.revisions.get"} <= set(
        re.findall(r"run\.\w+\.\w+", section("Roles short of Owner"))
    )


# ---- the check of a real project

CHECK = (ROOT / "docs" / "check-project.md").read_text()


def test_page_of_the_check_names_its_steps() -> None:
    program = (ROOT / "infra" / "release" / "check_project.py").read_text()
    steps = re.findall(r'step\(\s*"([^"]+)"', program)
    told = [row.split("|")[1].strip().lower() for row in re.findall(r"^\|.*\|$", CHECK, re.M)[2:]]
    assert len(told) == len(steps)
    for step in ("destroy what an earlier run has left", "send a message, twice", "follow it in the log", "destroy"):
        assert step in told
        assert step in map(str.lower, steps)


def test_the_page_of_the_check_names_the_lines_that_are_looked_for() -> None:
    for event in (*one_message.OF_THE_MESSAGE, *one_message.BESIDE_IT, *one_message.WRONG):
        assert f"`{event}`" in CHECK
    assert f"--update-labels={check_project.LABEL}={check_project.ALLOWED}" in CHECK
    assert "never in a real one" in CHECK


def test_page_of_the_check_enables_the_apis_a_service_account_needs() -> None:
    block = next(it for it in re.findall(r"```sh\n(.*?)```", CHECK, re.S) if "gcloud services enable" in it)
    apis = set(re.findall(r"([a-z]+)\.googleapis\.com", block))
    assert apis == {*place.ACCOUNT_APIS, "iam", "iamcredentials", "sts"}


def test_the_nightly_example_runs_the_check_with_options_that_it_has() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", CHECK, re.S)
    (job,) = yaml.safe_load(text)["jobs"].values()
    command = job["steps"][-1]["run"].split()
    assert command[:3] == ["python3", "-m", "infra.release.check_project"]
    assert [word.partition("=")[0] for word in command[3:]] == ["--project", "--region"]
    done = subprocess.run(
        [sys.executable, *command[1:3], "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    for option in set(re.findall(r"--(?:keep|only-destroy)", CHECK)):
        assert option in done.stdout
    terraform = next(step["with"] for step in job["steps"] if "terraform" in step.get("uses", ""))
    assert terraform["terraform_wrapper"] is False, "its wrapper changes exit codes"


# ---- keys of one's own


def test_no_documented_command_gives_cloud_tasks_its_own_key() -> None:
    """With one it makes no task in a queue that says where its tasks go, as ours do: every webhook would fail.
    https://cloud.google.com/tasks/docs/configuring-queues, "Limitations"
    """
    assert "http_target" in (TERRAFORM / "modules" / "tasks" / "main.tf").read_text()
    pages = [path.read_text() for path in (*(ROOT / "docs").rglob("*.md"), *TERRAFORM.rglob("*.md"))]
    assert not any("cmek-config" in page for page in pages)
    assert not any("gcp-sa-cloudtasks" in page for page in pages)
