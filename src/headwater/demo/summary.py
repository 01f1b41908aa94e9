"""Summary: the demo in numbers, and the failed checks.

What it is: ``summary_of`` makes the summary of a ``Scenario``; ``rows_of`` formats it.
Invariants: each failed check is a sentence in ``problems``; ``ok`` is true only without any.
Not here: the checks (``audit.py``).
Read next: ``audit.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.demo import audit
from headwater.demo.example import PAGE_VIEWS, TOLD
from headwater.demo.order_desk import desk_account

if TYPE_CHECKING:
    from headwater.demo.scenario import Scenario


def summary_of(scenario: Scenario) -> dict[str, Any]:
    """The summary of a finished scenario."""
    kept = [tick for tick, _ in scenario.manifests.kept()]
    skipped, again = audit.coverage(scenario.seen, scenario.log.get_topic(PAGE_VIEWS).end_offsets())
    uncounted, counted_twice = audit.counted(scenario.log)
    verified = scenario.engine.verified or []
    database = audit.database_problems(scenario.server, scenario.store)
    sinks = audit.sink_problems(scenario.home, scenario.store)
    damage = audit.check_problems(scenario.log)
    commands, desk = desk_account(scenario.server, scenario.store)
    summary: dict[str, Any] = {
        **scenario.facts,
        "address": scenario.engine.address,
        "events": {
            name: sum(scenario.log.get_topic(name).end_offsets().values()) for name in sorted(_inputs(scenario))
        },
        "ticks": kept[-1] if kept else 0,
        "latency_ms": scenario.freshness.percentiles(steady=True),
        "latency_whole_run_ms": scenario.freshness.percentiles(steady=False),
        "corrections": scenario.replica.corrections,
        "feed": {"ticks": scenario.replica.ticks, "changes": scenario.replica.changes},
        "views": [{name: each[name] for name in ("view", "tick", "rows", "equal")} for each in verified],
        "as_in_postgres": not database,
        "sinks_equal": not sinks,
        "alerts": len(list(scenario.log.get_topic(TOLD).rows())),
        "page_views_skipped": skipped,
        "page_views_seen_again": again,
        "page_views_counted_twice": counted_twice,
        "commands": commands,
        "desk_ok": not desk,
        "check_ok": not damage,
    }
    served = {tuple(row[name] for name in scenario.replica.key): row for row in _revenue(scenario)}
    promises = [
        (bool(verified), "the views were not verified"),
        (
            all(each["equal"] for each in verified),
            "views that differ from the log: " + ", ".join(each["view"] for each in verified if not each["equal"]),
        ),
        (kept == list(range(1, len(kept) + 1)), "a tick is missing, or was committed twice"),
        (scenario.replica.rows == served, "the change feed does not add up to the rows of the serving store"),
        (skipped == 0, f"the consumers skipped {skipped} page views"),
        (
            all(scenario.facts.get("paused_view", {}).get(each) for each in ("others_went_on", "resumed")),
            "no view was paused by a bad order and resumed after its correction, while the others went on",
        ),
        (uncounted == 0 == counted_twice, f"{uncounted} page views were not counted, {counted_twice} were twice"),
    ]
    broken = [sentence for kept_so, sentence in promises if not kept_so]
    told = [*scenario.problems, *scenario.engine.problems, *scenario.processes.failures, *scenario.replica.problems]
    problems = list(dict.fromkeys([*told, *broken, *database, *sinks, *desk, *damage]))
    return {**summary, "problems": problems, "ok": not problems}


def _inputs(scenario: Scenario) -> set[str]:
    return set(scenario.store.frontier.frontier)


def _revenue(scenario: Scenario) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = scenario.store.query("SELECT * FROM revenue").to_pylist()
    return rows


def rows_of(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary for people: what, and how much."""
    events, feed, late_order = summary["events"], summary["feed"], summary.get("late_order")
    equal = sum(each["equal"] for each in summary["views"])
    rows = [
        ("events in the log", f"{sum(events.values()):,}, of {len(events)} tables and topics"),
        ("ticks", f"{summary['ticks']:,}"),
        ("commit in PostgreSQL → in the views", latency(summary["latency_ms"])),
        ("  … of the whole run, with the kill", latency(summary["latency_whole_run_ms"])),
        ("first views on screen after", f"{summary.get('first_views_seconds', '?')} s"),
        ("corrections of past minutes", f"{summary['corrections']:,}"),
        (
            "consumer killed, taken over after",
            f"{summary.get('takeover_seconds', '?')} s, "
            f"{summary['page_views_skipped']} events skipped, {summary['page_views_seen_again']:,} seen again, "
            f"{summary['page_views_counted_twice']} counted twice",
        ),
        ("engine killed, back after", f"{summary.get('engine_back_seconds', '?')} s"),
        ("view paused by a bad row", _paused_view(summary.get("paused_view"))),
        ("orders by commands", _commands(summary)),
        ("alerts sent", f"{summary['alerts']}"),
        ("change feed", f"{feed['changes']:,} changes in {feed['ticks']} ticks, added up as served"),
        ("sinks equal to their views", "SQLite and search: " + ("yes" if summary["sinks_equal"] else "no")),
        (
            "views equal to PostgreSQL's answer",
            f"{', '.join(audit.IN_THE_DATABASE)}: " + ("yes" if summary["as_in_postgres"] else "no"),
        ),
        ("views equal to the log's contents", f"{equal} of {len(summary['views'])}"),
        ("check of every byte", "clean" if summary["check_ok"] else "damage"),
        ("backup while the shop was open", _backup(summary.get("backup") or {})),
        ("a customer erased from it", _forgotten(summary.get("forgotten") or {})),
        ("payments as they were", _proofs(summary.get("proofs") or {})),
    ]
    if late_order is not None:
        late = f"{late_order['before']} → {late_order['after']} by an order of {late_order['amount']}"
        rows.insert(6, ("a late order, for instance", late))
    return rows


def _commands(summary: dict[str, Any]) -> str:
    counts, well = summary["commands"], summary["desk_ok"]
    rest = "decided again, all the same, and as booked in PostgreSQL" if well else "not all as they should be"
    return f"{counts['accepted']:,} events, {counts['rejected']} rejected; {rest}"


def _backup(found: dict[str, Any]) -> str:
    if not found:
        return "none"
    return (
        f"{found['rows']:,} rows in {found['backup_seconds']} s, encrypted; a home made of it in"
        f" {found['restore_seconds']} s, every row and byte compared"
    )


def _forgotten(found: dict[str, Any]) -> str:
    if not found:
        return "nobody"
    return (
        f"{found['rows']:,} records of customer {found['customer']}, in the home and in the backup, in"
        f" {found['seconds']} s; a home made of it has none of them, and all others"
    )


def _proofs(found: dict[str, Any]) -> str:
    if not found:
        return "not looked at"
    return (
        f"{found['rows']:,} hashed again; {found['hashes']} hashes prove that they continue the {found['noted']:,}"
        " whose root was noted and signed"
    )


def _paused_view(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none"
    went_on, resumed = found.get("others_went_on"), found["resumed"]
    rest = "the others went on" if went_on else "and the others too"
    return f"{found['view']} ({found['reason']}), {rest}; " + ("resumed, and right" if resumed else "not resumed")


def latency(found: dict[str, Any]) -> str:
    """A latency in words.

    >>> latency({"p50": 1200, "p95": 2100, "samples": 40})
    'p50 1,200 ms, p95 2,100 ms (40 commits)'
    """
    if not found["samples"]:
        return "not measured"
    return f"p50 {found['p50']:,} ms, p95 {found['p95']:,} ms ({found['samples']:,} commits)"
