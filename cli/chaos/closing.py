"""The closing of a chaos run: ledger, records and logs, taken into one result."""

from itertools import islice

from cli.chaos.account import Books, by_key, take_account
from cli.chaos.fates import Rules, entries
from cli.chaos.logs import read_logs
from cli.chaos.plan import Plan
from cli.chaos.proof import needs
from cli.chaos.report import End, Result
from cli.chaos.run_settings import Wishes
from cli.chaos.running_stack import Site
from cli.chaos.schedule import Kind
from cli.chaos.trouble import Trouble

TIMELINES = 5
"""Of bad messages."""


def close(wishes: Wishes, plan: Plan, site: Site, trouble: Trouble, end: End) -> Result:
    """Everything that a run found."""
    ledger = by_key(entries(site.control.get("ledger")))
    told = read_logs(site.data_dir, {key for key, found in ledger.items() if key and len(found) > 1})
    rules = Rules(site.running.phone_number_id, wishes.policy, wishes.limits.doubt_window)
    books = Books(ledger, site.read, plan.refused, rules, told.evidence, end.early)
    account = take_account(islice(plan.messages, end.sent), books)
    made = site.control.get("faults/made")
    kills = {name: trouble.dealt[Kind.KILL, name] for name in wishes.killed}
    interrupted, twice = sum(told.interrupted.values()), made.get("task duplicate", 0)
    outages = made.get("provider unreachable", 0)
    return Result(
        wishes=wishes,
        end=end,
        dealt=trouble.dealt,
        swallowed=site.parts.proxy.swallowed if site.parts.proxy else 0,
        made=made,
        account=account,
        told=told,
        needs=list(needs(wishes.order.messages, kills, interrupted, account.doubted, twice, outages)),
        timelines=[site.timeline(finding.key) for finding in account.findings[:TIMELINES]],
    )
