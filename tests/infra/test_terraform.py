"""Terraform itself, on every root and module: formatted, valid, and wrong where something is wrong."""

import re
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.infra.code_side import Code
from tests.infra.offline.toolchain import Toolchain
from tests.infra.offline.workspace import TERRAFORM, TerraformFailed, Workspace
from tests.infra.plans import Plan
from tests.infra.rules_edges import DEPLOY, Edge, edges_of
from tests.infra.rules_services import services_work_on_what_cloud_run_sends
from tests.infra.variants import BARE, BOOTSTRAP, EVERYTHING, KMS_KEY, PROD, STAGING, given

ROOTS = (BOOTSTRAP, STAGING, PROD)
POMBO = "modules/pombo"


def test_every_file_is_formatted(workspace: Workspace) -> None:
    assert workspace.run(".", "fmt", "-check", "-diff", "-recursive") == ""


@pytest.mark.parametrize("root", ROOTS)
def test_every_root_is_valid(root: str, workspace: Workspace) -> None:
    workspace.validate(root)


MODULES_WITH_TESTS = sorted(str(path.parents[1].relative_to(TERRAFORM)) for path in TERRAFORM.rglob("*.tftest.hcl"))


@pytest.mark.parametrize("module", MODULES_WITH_TESTS)
def test_module_passes_its_own_tests(module: str, workspace: Workspace) -> None:
    assert {POMBO, "modules/redis"} <= set(MODULES_WITH_TESTS)
    workspace.init(module)
    said = workspace.run(module, "test", "-no-color")
    assert re.search(r"Success! [1-9][0-9]* passed, 0 failed\.", said)


def test_every_module_is_used() -> None:
    used = set(
        re.findall(r'source\s+= "[./]+/(?:modules/)?(\w+)"', "".join(p.read_text() for p in TERRAFORM.rglob("*.tf")))
    )
    assert {path.name for path in (TERRAFORM / "modules").iterdir()} == used


@pytest.mark.parametrize("root", ROOTS)
def test_every_root_names_the_provider_and_keeps_its_state_in_a_bucket(root: str) -> None:
    text = (TERRAFORM / root / "main.tf").read_text()
    assert 'version = "~> 8.7"' in text
    assert re.search(r"^  user_project_override = true\n  billing_project       = var\.project$", text, re.M), (
        "README.md"
    )
    assert f'backend "gcs" {{\n    prefix = "{root.split("/")[-1]}"\n  }}' in text, "each root has a state of its own"


def test_the_environments_differ_in_their_names_alone() -> None:
    for name in ("main.tf", "variables.tf", "outputs.tf"):
        staging, prod = ((TERRAFORM / root / name).read_text() for root in (STAGING, PROD))
        assert staging.replace('"staging"', '"prod"') == prod
    for name in ("variables.tf", "outputs.tf"):
        assert {(TERRAFORM / root / name).resolve() for root in (STAGING, PROD)} == {TERRAFORM / "environments" / name}


def _with(workspace: Workspace, file: str, old: str, new: str, command: Callable[[], object]) -> str:
    """What terraform says with one text in place of another; the file is put back."""
    path = workspace.folder / file
    text = path.read_text()
    assert text.count(old) >= 1, f"{file} has no {old}"
    path.write_text(text.replace(old, new, 1))
    try:
        with pytest.raises(TerraformFailed) as failed:
            command()
    finally:
        path.write_text(text)
    return " ".join(str(failed.value).split())


@pytest.fixture(scope="module")
def spoilt(make_workspace: Callable[[], Workspace]) -> Workspace:
    """A copy for one mistake at a time."""
    return make_workspace()


TASKS, RUN, FIRESTORE, SCHEDULER, BUDGET = (
    f"modules/{it}" for it in ("tasks", "run", "firestore", "scheduler", "budget")
)

MISTAKES = [
    ("a misspelt argument", TASKS, "max_attempts ", "max_atempts ", "Unsupported argument"),
    ("a misspelt block", TASKS, "retry_config {", "retries {", "Unsupported block type"),
    ("a block as a value", TASKS, "retry_config {", "retry_config = {", "Unsupported argument"),
    (
        "a block twice",
        TASKS,
        "  lifecycle {",
        "  retry_config {}\n  lifecycle {",
        "Too many",
    ),
    ("a word for a number", TASKS, "max_doublings      = 5", 'max_doublings      = "five"', "a number is required"),
    ("a required argument left out", SCHEDULER, "uri         =", "# uri =", 'The argument "uri" is required'),
    (
        "a required block left out",
        BUDGET,
        "  amount {\n    specified_amount {\n      units = tostring(var.amount)\n    }\n  }",
        "",
        "At least 1",
    ),
    (
        "a type that is none",
        FIRESTORE,
        '"google_firestore_index"',
        '"google_firestore_indexes"',
        "Invalid resource type",
    ),
    (
        "an attribute that is none",
        RUN,
        'google_cloud_run_v2_service.this.name\n  role     = "roles/run.i',
        'google_cloud_run_v2_service.this.nome\n  role     = "roles/run.i',
        "Unsupported attribute",
    ),
    (
        "a resource that is none",
        FIRESTORE,
        "google_firestore_database.this.name",
        "google_firestore_database.that.name",
        "undeclared resource",
    ),
    ("a variable that is none", RUN, "var.max_instances", "var.most_instances", "undeclared input variable"),
    (
        "a value that is not among those allowed",
        RUN,
        'var.public ? "INGRESS_TRAFFIC_ALL" :',
        'true ? "INGRESS_TRAFFIC_SOME" :',
        "expected ingress to be one of",
    ),
    ("a type of database that is none", FIRESTORE, '"FIRESTORE_NATIVE"', '"FIRESTORE"', "expected type to be one of"),
    (
        "what only the provider sets",
        TASKS,
        "  deletion_policy =",
        '  state = "RUNNING"\n  deletion_policy =',
        "cannot be set",
    ),
    (
        "a circle",
        FIRESTORE,
        "index_config {}\n}",
        "index_config {}\n  depends_on = [google_firestore_index.this]\n}",
        "Cycle",
    ),
]


@pytest.mark.parametrize(("module", "old", "new", "said"), [it[1:] for it in MISTAKES], ids=[it[0] for it in MISTAKES])
def test_terraform_mistake_is_refused(spoilt: Workspace, module: str, old: str, new: str, said: str) -> None:
    spoilt.init(module)
    assert said in _with(spoilt, f"{module}/main.tf", old, new, lambda: spoilt.validate(module))


def test_another_provider_than_was_checked_is_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    workspace = Workspace(replace(toolchain, attached=""), tmp_path / "copy")  # only such a one is installed
    said = _with(workspace, f"{STAGING}/main.tf", "~> 8.7", "~> 9.0", lambda: workspace.init(STAGING))
    assert "no available releases match the given constraints ~> 9.0" in said


def _init_with_the_bucket(toolchain: Toolchain, root: Path) -> str:
    """What the true backend says. No key and no network: a right block comes as far as the credentials.

    Without -backend-config: with it, terraform takes any word in the block for an argument.
    """
    done = subprocess.run(
        [toolchain.terraform, "init", "-input=false", "-no-color"],
        cwd=root,
        env=toolchain.environment() | {"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("root", ROOTS)
def test_the_state_bucket_is_configured_as_the_backend_wants_it(
    root: str, toolchain: Toolchain, make_workspace: Callable[[], Workspace]
) -> None:
    folder = make_workspace().folder / root
    assert "credentials" in _init_with_the_bucket(toolchain, folder), "validate does not look at the backend"
    main = folder / "main.tf"
    main.write_text(main.read_text().replace("prefix =", "prefx ="))
    assert "Unsupported argument" in _init_with_the_bucket(toolchain, folder)


NO_RECEIPT_SHARE = {"failed_receipts_percent": 101, "api_errors_least": 0}
NO_API_SHARE = {"failed_receipts_least": 0, "api_errors_percent": 101}
"""Two wrong thresholds each, because each pair takes one plan."""

REFUSED = [
    ("no attempt at all", {**BARE, "settings": {"max_attempts": 0}}, "max_attempts must be from 1 to 50."),
    (
        "a window too short",
        {**BARE, "settings": {"in_doubt_seconds": 60}},
        "in_doubt_seconds must be from 120 to 86400.",
    ),
    ("more threads than there are", {**BARE, "settings": {"threads": 1001}}, "threads must be from 1 to 1000."),
    (
        "more requests than Cloud Run sends",
        {**BARE, "settings": {"webhook_concurrency": 1001}},
        "webhook_concurrency must be from 1 to 1000.",
    ),
    (
        "a part of a request",
        {**BARE, "settings": {"webhook_concurrency": "1.5"}},
        "webhook_concurrency and webhook_max_bytes must be whole numbers.",
    ),
    ("more tasks than instances", {**BARE, "max_instances": {"internal": 5}}, "raise max_instances of internal"),
    (
        "more pairs than the instances that were asked for",
        {**BARE, "tenant_queues": 20, "max_instances": {"internal": 10}},
        "raise max_instances of internal",
    ),
    (
        "no messages at all",
        {**BARE, "outbound_rate": 0},
        "outbound_rate must be a number of messages a second from 1 to 500",
    ),
    (
        "more than a queue sends",
        {**BARE, "tenant_queue_per_second": 501},
        "tenant_queue_per_second must be a number of messages a second from 1 to",
    ),
    (
        "a tenant's message never sent",
        {**BARE, "max_concurrency_per_tenant": 0},
        "max_concurrency_per_tenant must be a whole number from 1 to 100",
    ),
    (
        "a tenant's events never handled",
        {**BARE, "inbound_max_concurrency_per_tenant": 0},
        "inbound_max_concurrency_per_tenant must be a whole number from 1 to 100",
    ),
    *(
        (f"{value:g} for {name}", {**BARE, name: value}, f"{name} must be a whole number from 1 to 100")
        for name in ("max_concurrency_per_tenant", "inbound_max_concurrency_per_tenant")
        for value in (1.5, 101)
    ),
    (
        "no events of a tenant",
        {**BARE, "inbound_tenant_queue_per_second": 0},
        "inbound_tenant_queue_per_second must be a number of events a second from 1 to",
    ),
    ("more queues than a region has", {**BARE, "tenant_queues": 481}, "must be a whole number of pairs from 0 to 480"),
    ("half a pair", {**BARE, "tenant_queues": 1.5}, "must be a whole number of pairs from 0 to 480"),
    (
        "an e-mail for a channel",
        {**BARE, "critical_channels": ["oncall@example.com"]},
        "critical_channels must have a name like",
    ),
    ("a channel by its number", {**BARE, "warning_channels": ["123"]}, "warning_channels must have a name like"),
    ("logs in a multi-region", {**BARE, "log_location": "eur3"}, "log_location must be a region like"),
    (
        "an API by its short name",
        {**BARE, "audited_apis": ["firestore"]},
        "must have a name like secretmanager.googleapis.com",
    ),
    (
        "a key of another region",
        {**BARE, "kms_key": KMS_KEY.format("us-east1")},
        "kms_key must be the full name of a key in",
    ),
    ("a key by its short name", {**BARE, "kms_key": "pombo"}, "kms_key must be the full name of a key in europe-west1"),
    (
        "a database that is not where its key is",
        {**BARE, "kms_key": KMS_KEY.format("europe-west1"), "firestore_location": "eur3"},
        "firestore_location must be the region",
    ),
    ("hourly backups", {**BARE, "firestore_backups": {"hourly": 1}}, "only the names daily and weekly"),
    ("backups of a year", {**BARE, "firestore_backups": {"weekly": 365}}, "must be whole days from 1 to 98"),
    (
        "a budget of a project",
        {**BARE, "budget": {"billing_account": "my-project-1", "amount": 5}},
        "billing_account of the budget must be like",
    ),
    (
        "a budget of nothing",
        {**BARE, "budget": {"billing_account": "012345-6789AB-CDEF01", "amount": 0}},
        "amount of the budget must be a whole number from 1",
    ),
    ("a handler longer than a task", {**BARE, "settings": {"handler_timeout": 1701}}, "must be from 1 to 1700"),
    ("a handler without time", {**BARE, "settings": {"handler_timeout": 0}}, "must be from 1 to 1700"),
    ("a threshold that is none", {**BARE, "alert_thresholds": {"provider_down": 5}}, "has unknown names"),
    ("a threshold below nothing", {**BARE, "alert_thresholds": {"unknown_sender": -1}}, "must be 0 or greater"),
    ("more than all receipts", {**BARE, "alert_thresholds": NO_RECEIPT_SHARE}, "from 0 to 100"),
    ("no failed API request", {**BARE, "alert_thresholds": NO_RECEIPT_SHARE}, "must be at least 1"),
    ("no failed receipt", {**BARE, "alert_thresholds": NO_API_SHARE}, "must be at least 1"),
    ("more than all API requests", {**BARE, "alert_thresholds": NO_API_SHARE}, "from 0 to 100"),
    ("an app by its name", {**BARE, "meta_app_id": "my-app"}, "meta_app_id must be the ID that Meta shows"),
    ("half a minute", {**BARE, "alert_thresholds": {"backend_down_warning": 0.5}}, "must be whole minutes"),
    ("a warning that comes last", {**BARE, "alert_thresholds": {"provider_down_warning": 31}}, "is above its"),
    ("an alert before its warning", {**BARE, "alert_thresholds": {"queue_depth_critical": 99}}, "is above its"),
    (
        "more instances than addresses",
        {**BARE, "redis": True, "max_instances": {"webhook": 1000, "internal": 100}},
        "max_instances are 1110 together",
    ),
    ("a Redis that is not there", {**BARE, "store": "redis"}, "needs redis = true"),
]


Refused = Callable[[dict[str, object]], str]


def _together(cases: Iterable[dict[str, object]]) -> list[list[dict[str, object]]]:
    """The cases in groups that change no variable twice: a plan reports every wrong variable, so one serves a group.

    Too few instances are alone: Terraform adds them up only when every variable is valid by itself.
    """
    groups: list[list[dict[str, object]]] = []
    for case in cases:
        group = next((it for it in groups if _fits(case, it)), None)
        if group is None:
            groups.append(group := [])
        group.append(case)
    return groups


def _fits(case: dict[str, object], group: list[dict[str, object]]) -> bool:
    names = [name for one in (case, *group) for name in _changes(one)]
    return len(set(names)) == len(names) and "max_instances" not in names


def _changes(variables: dict[str, object]) -> dict[str, object]:
    """Those that differ from BARE."""
    return {name: value for name, value in variables.items() if name not in BARE or BARE[name] != value}


@pytest.fixture(scope="module")
def refused(workspace: Workspace) -> Refused:
    """What Terraform says of a case's variables, and of those that are refused with them."""
    groups = _together([variables for _, variables, _ in REFUSED])

    @cache
    def said(number: int) -> str:
        together = {name: value for case in groups[number] for name, value in _changes(case).items()}
        with pytest.raises(TerraformFailed) as failed:
            workspace.plan(STAGING, *given({**BARE, **together}))
        return _words(failed)

    return lambda variables: said(next(number for number, group in enumerate(groups) if variables in group))


def _words(failed: pytest.ExceptionInfo[TerraformFailed]) -> str:
    """Terraform draws a line beside what it says, and breaks it anywhere."""
    return " ".join(str(failed.value).replace("│", "").split())


@pytest.mark.parametrize(("variables", "said"), [it[1:] for it in REFUSED], ids=[it[0] for it in REFUSED])
def test_incompatible_variables_are_refused(refused: Refused, variables: dict[str, object], said: str) -> None:
    assert said in refused(variables)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"kms_key": KMS_KEY.format("us-east1"), "secret_locations": ["europe-west1"]}, "a key in europe-west1"),
        ({"kms_key": KMS_KEY.format("europe-west1")}, "secret_locations must be only the region"),
        ({"kms_key": KMS_KEY.format("europe-west1"), "secret_locations": ["us-east1"]}, "must be only the region"),
    ],
)
def test_incompatible_bootstrap_variables_are_refused(
    workspace: Workspace, variables: dict[str, object], said: str
) -> None:
    with pytest.raises(TerraformFailed) as failed:
        workspace.plan(BOOTSTRAP, *given({"project": "my-project-1", "region": "europe-west1", **variables}))
    assert said in _words(failed)


@pytest.mark.parametrize(
    ("pairs", "threads", "instances"),
    [
        pytest.param(0, 16, 10, marks=pytest.mark.slow),
        pytest.param(6, 16, 10, marks=pytest.mark.slow),
        (20, 16, 17),
        pytest.param(40, 16, 26, marks=pytest.mark.slow),
        pytest.param(400, 16, 195, marks=pytest.mark.slow),
        (0, 4, 29),
    ],
)
def test_there_are_as_many_instances_as_the_queues_need(
    workspace: Workspace, pairs: int, threads: int, instances: int
) -> None:
    plan = Plan(workspace.plan(STAGING, *given({**BARE, "tenant_queues": pairs, "settings": {"threads": threads}})))
    assert len(plan.queues) == 3 + 2 * pairs
    assert plan.service("internal").max_instances == instances
    assert [plan.service(key).max_instances for key in ("webhook", "api")] == [10, 10]
    assert list(services_work_on_what_cloud_run_sends(plan, Code())) == []


def test_requested_version_of_redis_url_wins_over_terraforms_own(workspace: Workspace) -> None:
    """Back to an address of before, as with any other secret."""
    plan = Plan(workspace.plan(PROD, *given({**EVERYTHING, "secret_versions": {"REDIS_URL": 3}})))
    assert {it.secrets["REDIS_URL"]["version"] for it in plan.services} == {"3"}


CONSOLE = """    console = {
      public      = true
      timeout     = 60
      concurrency = 80
      env         = {}
      secrets     = ["INTERNAL_TASK_TOKEN"]
      enqueues    = ["outbound"]
      looks_at    = ["inbound", "outbound"]
      lists       = false
      invokers    = []
    }
    webhook = {"""


def test_another_service_is_one_more_entry(
    make_workspace: Callable[[], Workspace], plan_of: Callable[[str], Plan]
) -> None:
    workspace, before = make_workspace(), plan_of("bare")
    services = workspace.folder / POMBO / "services.tf"
    services.write_text(services.read_text().replace("    webhook = {", CONSOLE, 1))
    after = Plan(workspace.plan(STAGING, *given(BARE)))
    there = {it.address for it in before.resources}
    assert all("console" in it.address for it in after.resources if it.address not in there)
    assert (
        after.service("console").block("template")["service_account"]
        == "pombo-console@my-project-1.iam.gserviceaccount.com"
    )
    assert edges_of(after) - edges_of(before) == {
        Edge("console", "pomboRecords", 'project if resource.name == "projects/my-project-1/databases/pombo"'),
        *(Edge("console", "pomboTaskMaker", f"queue {name}") for name in after.queues if name.startswith("outbound")),
        Edge("console", "pomboQueueReader", "queue inbound"),
        Edge("console", "pomboQueueReader", "queue outbound"),
        Edge("console", "secretmanager.secretAccessor", "secret INTERNAL_TASK_TOKEN"),
        Edge(DEPLOY, "run.developer", "service console"),
        Edge(DEPLOY, "iam.serviceAccountUser", "account console"),
    }


def test_the_readme_names_every_variable_output_and_module() -> None:
    readme = (TERRAFORM / "README.md").read_text()
    files = "".join(
        (TERRAFORM / root / name).read_text() for root in (BOOTSTRAP, PROD) for name in ("variables.tf", "outputs.tf")
    )
    names = {
        *re.findall(r'^(?:variable|output) "(\w+)"', files, re.M),
        *(it.name for it in (TERRAFORM / "modules").iterdir()),
    }
    assert {name for name in names if f"`{name}`" not in readme} == set()


def test_the_readme_has_the_default_of_every_number() -> None:
    readme = (TERRAFORM / "README.md").read_text()
    told = {
        name: default
        for names, defaults in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([0-9`, ]+) \|", readme, re.M)
        for name, default in zip(re.findall(r"\w+", names), re.findall(r"\d+", defaults), strict=True)
    }
    variables = (TERRAFORM / "environments" / "variables.tf").read_text()
    numbers = re.findall(r'^variable "(\w+)" \{\n(?:  .*\n)*?  type +?= number\n  default += (\d+)$', variables, re.M)
    assert {"tenant_queues", "max_concurrency_per_tenant"} <= set(told)
    assert told == dict(numbers)


@pytest.mark.parametrize("root", [STAGING, PROD])
def test_example_sets_only_existing_variables(root: str) -> None:
    named = set(re.findall(r"^(\w+) +=", (TERRAFORM / root / "example.tfvars").read_text(), re.M))
    assert named <= set(EVERYTHING) | {"handler"}
