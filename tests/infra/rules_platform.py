"""Rules for the platform under the services: addresses, egress, access to Redis, and timeouts of their callers."""

from collections.abc import Iterator

from tests.infra.code_side import Code
from tests.infra.plans import Plan, Resource

ADDRESSES_EACH = 4
"""Two an instance; those of an ended revision are kept for up to 20 minutes:
https://cloud.google.com/run/docs/configuring/vpc-direct-vpc#direct-vpc-ip-allocation.
"""

RESERVED = 4
"""Addresses of each subnet that Google reserves."""

LARGEST_PREFIX = 26
SLOWEST_LIVENESS = 300
"""Seconds beyond the longest request until an unresponsive instance is ended."""

READY_WITHIN = (60, 240)
"""Seconds that an instance may take to start: at least an import, a connection to the store and one to the queue on a
slow day; at most what Cloud Run allows.
"""


def _subnets(plan: Plan) -> dict[str, Resource]:
    return {it["name"]: it for it in plan.of("google_compute_subnetwork")}


def every_instance_finds_an_address(plan: Plan, code: Code) -> Iterator[str]:
    wanted: dict[str, int] = {}
    for service in plan.services:
        for network in service.block("template", "vpc_access").get("network_interfaces") or []:
            wanted[network["subnetwork"]] = wanted.get(network["subnetwork"], 0) + service.max_instances
    for name, instances in wanted.items():
        subnet = _subnets(plan).get(name)
        if subnet is None:
            yield f"The services are in the subnetwork {name}, which the plan does not create."
            continue
        prefix = int(subnet["ip_cidr_range"].partition("/")[2])
        addresses = 2 ** (32 - prefix) - RESERVED
        if prefix > LARGEST_PREFIX or addresses < ADDRESSES_EACH * instances:
            needed = f"{instances} instances need {ADDRESSES_EACH} each, and /{LARGEST_PREFIX} at least"
            yield f"{name} has {addresses} addresses; {needed}."


def the_services_reach_the_internet(plan: Plan, code: Code) -> Iterator[str]:
    nats = plan.of("google_compute_router_nat")
    for service in plan.services:
        access = service.block("template", "vpc_access")
        if access.get("egress") == "ALL_TRAFFIC" and not nats:
            yield f"{service.key} sends all its traffic into the network, and no NAT leads from there to Meta."
        for network in access.get("network_interfaces") or []:
            subnet = _subnets(plan).get(network["subnetwork"])
            if access and subnet is not None and subnet.get("private_ip_google_access") is not True:
                yield f"{service.key} is in {network['subnetwork']}, from which Google's APIs are not reached."


def a_redis_is_reached_as_its_mode_wants(plan: Plan, code: Code) -> Iterator[str]:
    connections = {it["network"] for it in plan.of("google_service_networking_connection")}
    for redis in plan.of("google_redis_instance"):
        mode = redis.get("connect_mode") or "DIRECT_PEERING"
        if mode == "PRIVATE_SERVICE_ACCESS" and not connections:
            yield f"{redis.address} is reached by PRIVATE_SERVICE_ACCESS, and its network has no such connection."


def secrets_begin_with_their_first_version(plan: Plan, code: Code) -> Iterator[str]:
    named = plan.variables.get("secret_versions") or {}
    by_terraform = {str(it["secret"]).split("/")[-1] for it in plan.of("google_secret_manager_secret_version")}
    for service in plan.services:
        for name, reference in service.secrets.items():
            if name in by_terraform and name not in named:
                continue
            wanted = str(named.get(name, 1))
            if reference.get("version") != wanted:
                given = reference.get("version")
                yield f"{name} of {service.key} is version {given}, but version {wanted} exists."


def probes_have_their_time(plan: Plan, code: Code) -> Iterator[str]:
    for service in plan.services:
        start, live = (service.container[f"{kind}_probe"][0] for kind in ("startup", "liveness"))
        within = start["period_seconds"] * start["failure_threshold"] + (start.get("initial_delay_seconds") or 0)
        if not READY_WITHIN[0] <= within <= READY_WITHIN[1]:
            yield f"{service.key} is given {within} s to start: from {READY_WITHIN[0]} to {READY_WITHIN[1]}."
        if start["period_seconds"] > 10 or (start.get("initial_delay_seconds") or 0) > 10:
            yield f"{service.key} is found ready {start['period_seconds']} s late: requests wait for each start."
        if start["timeout_seconds"] < 1 or live["timeout_seconds"] < 5:
            yield f"A probe of {service.key} is given too little time for its answer."
        ended = live["period_seconds"] * live["failure_threshold"] + (live.get("initial_delay_seconds") or 0)
        if ended > service.timeout + SLOWEST_LIVENESS:
            most = service.timeout + SLOWEST_LIVENESS
            yield f"{service.key} is ended {ended} s after it last answered: {most} at most."


def one_call_that_hangs_does_not_silence_the_sweep(plan: Plan, code: Code) -> Iterator[str]:
    """While one call runs, Cloud Scheduler makes no other."""
    deadline = float(str(plan.one("google_cloud_scheduler_job")["attempt_deadline"]).removesuffix("s"))
    silent = 60 * float((plan.variables.get("alert_thresholds") or {}).get("sweep_silent", 15))
    if deadline > silent / 2:
        yield f"The scheduler waits {deadline:g} s for a sweep, and after {silent:g} without one an alert fires."


RULES = (
    every_instance_finds_an_address,
    the_services_reach_the_internet,
    a_redis_is_reached_as_its_mode_wants,
    secrets_begin_with_their_first_version,
    probes_have_their_time,
    one_call_that_hangs_does_not_silence_the_sweep,
)
