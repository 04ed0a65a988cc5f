"""Rules for the services: their environment, their callers, their timeouts and their concurrency."""

import re
from collections.abc import Iterator
from datetime import timedelta

from shared.config import ConfigError
from tests.infra.code_side import ONLY_WITH, Code, seconds
from tests.infra.plans import Plan, Service
from tests.support.outlasting import outlasted

SETTINGS_PY = "shared/config/settings.py"
SERVICES_TF = "infra/terraform/modules/pombo/services.tf"
SHARE_OF_INSTANCES = 0.8
MEMORY = "512Mi"
"""Of a service that `memory` does not name."""

AT_ONCE = {"webhook": "WEBHOOK_CONCURRENCY", "api": "THREADS", "internal": "THREADS"}
"""The setting of how many requests a service works on at once."""

PUBLIC = {"webhook": "Meta has no account here", "api": "its callers have API keys and no account here"}
"""The services that everyone may call, and why."""

PUBLIC_SECONDS = {
    "webhook": (20, "a body has 10 s to arrive and is answered within 10 more"),
    "api": (30, "a batch stores a hundred messages, and a store that is away is noticed within 5 s"),
}
"""The least request timeout of a public service, and why."""

LONGEST_START = 240
"""Seconds: Cloud Run's maximum for a startup probe, https://cloud.google.com/run/docs/configuring/healthchecks."""


def _plain(service: Service) -> dict[str, str]:
    return {name: value or "" for name, value in service.env.items()}


def every_service_of_the_code_is_there(plan: Plan, code: Code) -> Iterator[str]:
    there = {it.key for it in plan.services}
    for key in set(code.services) - there:
        yield f"{SETTINGS_PY} names a service {key}; {SERVICES_TF} has none."
    for key in there - set(code.services):
        yield f"{SERVICES_TF} has a service {key}; {SETTINGS_PY} names none."


def each_variable_the_code_reads_is_set_and_nothing_else(plan: Plan, code: Code) -> Iterator[str]:
    for service in plan.services:
        given = {*service.env, *service.secrets}
        required, allowed = code.variables(service.key, _plain(service))
        unasked = {name for (key, name), asks in ONLY_WITH.items() if key == service.key and plan.given(asks) is None}
        required, allowed = required - unasked, allowed - unasked
        if service.key == "internal":
            allowed = {*allowed, *_handlers_own(plan)}
        for name in sorted(required - given):
            yield f"{name} is read by the {service.key} service ({SETTINGS_PY}) and not set in {SERVICES_TF}."
        for name in sorted(given - allowed):
            yield f"{name} is set for the {service.key} service in {SERVICES_TF} and not read ({SETTINGS_PY})."
        names = [it["name"] for it in service.container["env"]]
        if len(names) != len(set(names)):
            yield f"A variable of {service.key} is set twice in {SERVICES_TF}."


def _handlers_own(plan: Plan) -> set[str]:
    return {*(plan.variables.get("handler_variables") or ()), *(plan.variables.get("handler_secrets") or ())}


def the_handler_is_given_its_own(plan: Plan, code: Code) -> Iterator[str]:
    internal = plan.service("internal")
    for name, value in (plan.variables.get("handler_variables") or {}).items():
        if internal.env.get(name) != value:
            yield f"{name} of handler_variables is not set for internal in {SERVICES_TF}."
    for name in plan.variables.get("handler_secrets") or ():
        if name not in internal.secrets:
            yield f"{name} of handler_secrets is not given to internal in {SERVICES_TF}."


def the_code_starts_with_what_it_is_given(plan: Plan, code: Code) -> Iterator[str]:
    for service in plan.services:
        try:
            code.config(service.key, _plain(service), service.secrets)
        except ConfigError as error:
            for fault in error.faults:
                yield f"The {service.key} service would not start with what {SERVICES_TF} sets: {fault}"


def secrets_are_given_by_reference(plan: Plan, code: Code) -> Iterator[str]:
    for service in plan.services:
        for name in sorted(set(service.env) & code.secrets):
            yield f"{name} is a secret ({SETTINGS_PY}), and {SERVICES_TF} sets it for {service.key} in plain sight."
        for name, reference in service.secrets.items():
            if name not in code.secrets and name not in (plan.variables.get("handler_secrets") or ()):
                yield f"{name} is not a secret ({SETTINGS_PY}), and {SERVICES_TF} gives it to {service.key} as one."
            if reference["secret"] != name:
                yield f"{name} of {service.key} comes from the secret {reference['secret']}."
            # The version that Terraform itself writes has no number before the first apply.
            by_terraform = "version" not in reference and _writes(plan, name)
            if not by_terraform and not str(reference.get("version")).isdigit():
                yield f"{name} of {service.key} is version {reference['version']}: instances may differ."
    for version in plan.of("google_secret_manager_secret_version"):
        if version.get("secret_data"):
            yield f"{version.address} has its value in the state."


def _writes(plan: Plan, secret: str) -> bool:
    return any(str(it["secret"]).endswith(f"/{secret}") for it in plan.of("google_secret_manager_secret_version"))


def only_the_services_with_checks_of_their_own_are_public(plan: Plan, code: Code) -> Iterator[str]:
    for service in plan.services:
        if why := PUBLIC.get(service.key):
            if service["ingress"] != "INGRESS_TRAFFIC_ALL" or not service["invoker_iam_disabled"]:
                yield f"The {service.key} service must be open to everyone: {why}."
        elif service["ingress"] != "INGRESS_TRAFFIC_INTERNAL_ONLY" or service["invoker_iam_disabled"]:
            yield f"The {service.key} service must be open to the project's own callers only."
        if service["default_uri_disabled"]:
            yield f"The {service.key} service has no run.app address, by which alone Cloud Tasks reaches it."
    for member in plan.members:
        if str(member["member"]).startswith("all"):
            yield f"{member.address} is for {member['member']}."


def each_service_is_somebody_of_its_own(plan: Plan, code: Code) -> Iterator[str]:
    made = {f"{it['account_id']}@{it['project']}.iam.gserviceaccount.com" for it in plan.of("google_service_account")}
    for service in plan.services:
        account = service.block("template").get("service_account")
        if account != f"{service['name']}@{service['project']}.iam.gserviceaccount.com":
            yield f"The {service.key} service runs as {account}, not as an account of its own."
        elif account not in made:
            yield f"The {service.key} service runs as {account}, which the plan does not create."


def services_work_on_what_cloud_run_sends(plan: Plan, code: Code) -> Iterator[str]:
    for service in plan.services:
        name = AT_ONCE[service.key]
        at_once, sent = service.env.get(name), service.concurrency
        if str(sent) != at_once:
            yield f"{service.key} is sent {sent} requests at once for {name}={at_once}: Cloud Run counts them wrongly."
    tasks = sum(it.block("rate_limits")["max_concurrent_dispatches"] for it in plan.queues.values())
    internal = plan.service("internal")
    room = SHARE_OF_INSTANCES * internal.max_instances * internal.concurrency
    if tasks > room:
        yield f"The queues run {tasks} tasks at once, internal has room for {room:g}: 429 slows the whole queue down."


def times_outlast_one_another(plan: Plan, code: Code) -> Iterator[str]:
    internal = plan.service("internal")
    limits = {it.key: code.limits(it.key, _plain(it), it.secrets) for it in plan.services}
    request = timedelta(seconds=internal.timeout)
    if request != limits["internal"].request_timeout:
        wanted = seconds(limits["internal"].request_timeout)
        yield f"internal's timeout is {internal.timeout} s; by shared/domain/limits.py it is {wanted}."
    yield from outlasted(limits["webhook"], limits["internal"], request)
    if limits["api"].dispatch_deadline != limits["internal"].dispatch_deadline:
        yield "The API's tasks have another dispatch deadline than internal's."
    for key, (least, why) in PUBLIC_SECONDS.items():
        timeout = plan.service(key).timeout
        if not least <= timeout <= 300:
            yield f"{key}'s timeout is {timeout} s, and must be from {least} to 300: {why}."


def probes_ask_what_the_services_answer(plan: Plan, code: Code) -> Iterator[str]:
    for service in plan.services:
        start, live = (service.container[f"{kind}_probe"][0] for kind in ("startup", "liveness"))
        if start["http_get"][0]["path"] != "/startz":
            yield f"{service.key} is started when {start['http_get'][0]['path']} answers, not when /startz does."
        if live["http_get"][0]["path"] != "/livez":
            yield f"{service.key} is ended by {live['http_get'][0]['path']}, not by /livez."
        for probe in (start, live):
            if probe["timeout_seconds"] > probe["period_seconds"]:
                yield f"A probe of {service.key} waits longer than until the next."
        if start["period_seconds"] * start["failure_threshold"] > LONGEST_START:
            yield f"{service.key} is given longer to start than the {LONGEST_START} s that Cloud Run allows."
        if live["period_seconds"] * live["failure_threshold"] <= service.timeout:
            yield f"{service.key} is ended as dead while every thread works: a request may take {service.timeout} s."


def the_port_is_the_one_cloud_run_tells(plan: Plan, code: Code) -> Iterator[str]:
    (setting,) = [it for it in code.settings if it.name == "PORT"]
    for service in plan.services:
        port = service.container["ports"][0]["container_port"]
        if service.key not in setting.services or setting.parse(str(port)) != port:
            yield f"{service.key} is asked on port {port}, which PORT ({SETTINGS_PY}) cannot tell it."
        for kind in ("startup_probe", "liveness_probe"):
            if (service.container[kind][0]["http_get"][0].get("port") or port) != port:
                yield f"{kind} of {service.key} asks on another port than {port}."


def a_cpu_is_paid_for_while_it_works(plan: Plan, code: Code) -> Iterator[str]:
    for service in plan.services:
        resources = service.container["resources"][0]
        if resources["cpu_idle"] is not True:
            yield f"{service.key} pays for its CPU all day: cpu_idle must be true beside limits."
        if resources["startup_cpu_boost"] is not True:
            yield f"{service.key} starts without the boost."
        if float(resources["limits"]["cpu"]) < 1 and service.concurrency > 1:
            yield f"{service.key} has less than a CPU and more than a request at once."
        memory = (plan.given("memory") or {}).get(service.key, MEMORY)
        if resources["limits"]["memory"] != memory:
            yield f"{service.key} has {resources['limits']['memory']}, and {memory} is what it is given."
        wanted = (plan.variables.get("min_instances") or {}).get(service.key, 0)
        if service.block("scaling").get("min_instance_count") != wanted:
            yield f"{service.key} keeps other than {wanted} instances."
        if service.block("template", "scaling").get("min_instance_count"):
            yield f"{service.key} keeps instances of revisions without traffic."


def addresses_are_those_cloud_run_will_give(plan: Plan, code: Code) -> Iterator[str]:
    internal = plan.service("internal")
    url = internal.env.get("INTERNAL_TASK_BASE_URL") or ""
    name, place = re.escape(internal["name"]), re.escape(internal["location"])
    if not re.fullmatch(rf"https://{name}-[0-9]+\.{place}\.run\.app", url):
        yield f"INTERNAL_TASK_BASE_URL is {url}, which is not the address of {internal['name']}."
    for service in plan.services:
        if service.env.get("INTERNAL_TASK_BASE_URL") != url:
            yield f"{service.key} sends tasks to another INTERNAL_TASK_BASE_URL than internal checks."
        if service.env.get("CLOUD_TASKS_LOCATION") not in {it["location"] for it in plan.queues.values()}:
            yield f"{service.key} looks for queues in {service.env.get('CLOUD_TASKS_LOCATION')}, where there are none."
        if service.env.get("GOOGLE_CLOUD_PROJECT") != service["project"]:
            yield f"{service.key} is given a project other than its own."
    if url not in internal["custom_audiences"]:
        yield f"internal does not take tokens made for {url}."
    for key in ("webhook", "api", "internal"):
        if plan.outputs[f"{key}_url"].removeprefix("https://").split("-")[:2] != ["pombo", key]:
            yield f"{key}_url does not lead to the {key} service."


RULES = (
    every_service_of_the_code_is_there,
    each_variable_the_code_reads_is_set_and_nothing_else,
    the_handler_is_given_its_own,
    the_code_starts_with_what_it_is_given,
    secrets_are_given_by_reference,
    only_the_services_with_checks_of_their_own_are_public,
    each_service_is_somebody_of_its_own,
    services_work_on_what_cloud_run_sends,
    times_outlast_one_another,
    probes_ask_what_the_services_answer,
    the_port_is_the_one_cloud_run_tells,
    a_cpu_is_paid_for_while_it_works,
    addresses_are_those_cloud_run_will_give,
)
