"""Collect the result of a chaos run from the ledger, the records and the logs."""

from collections.abc import Sequence
from itertools import islice

from cli.chaos.api_load import ApiSent
from cli.chaos.audit import AuditInputs, audit, by_key
from cli.chaos.enough_faults import needs
from cli.chaos.fault_injection import FaultInjector
from cli.chaos.fault_schedule import Action
from cli.chaos.handler import calls_in, tries_in
from cli.chaos.logs import read_logs
from cli.chaos.message_fate import Rules, entries
from cli.chaos.plan import Plan
from cli.chaos.report import End, Result
from cli.chaos.run_settings import RunSettings
from cli.chaos.running_stack import RunningStack

TIMELINES = 5
"""Bad messages whose timelines are collected."""


def close(
    run_settings: RunSettings,
    plan: Plan,
    running_stack: RunningStack,
    injector: FaultInjector,
    by_api: Sequence[ApiSent],
    end: End,
) -> Result:
    """Collect everything that a run found."""
    ledger = by_key(entries(running_stack.control.get("ledger")))
    told = read_logs(running_stack.data_dir, {key for key, found in ledger.items() if key and len(found) > 1})
    rules = Rules(running_stack.businesses, run_settings.policy, run_settings.limits.doubt_window)
    inputs = AuditInputs(
        ledger=ledger,
        read=running_stack.read,
        refused=plan.refused,
        rules=rules,
        evidence=told.evidence,
        by_api=by_api,
        calls=calls_in(tries_in(running_stack.data_dir)),
        inbound_lease=run_settings.limits.inbound_lease.total_seconds(),
        lost_leases=told.lost_leases,
        ended_at=end.early,
    )
    account = audit(islice(plan.messages, end.sent), inputs)
    made = running_stack.control.get("faults/made")
    kills = {name: injector.injected[Action.KILL, name] for name in run_settings.killed}
    interrupted, twice = sum(told.interrupted.values()), made.get("task duplicate", 0)
    outages = made.get("provider unreachable", 0)
    return Result(
        run_settings=run_settings,
        end=end,
        injected=injector.injected,
        swallowed=running_stack.parts.proxy.swallowed if running_stack.parts.proxy else 0,
        made=made,
        account=account,
        told=told,
        by_api=by_api,
        needs=list(needs(run_settings.order.messages, kills, interrupted, account.doubted, twice, outages)),
        timelines=[running_stack.timeline(finding.key) for finding in account.findings[:TIMELINES]],
    )
