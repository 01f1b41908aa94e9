"""The account: what the demo was, in numbers, and the promises that were not kept.

What it is: ``account`` draws up the summary of a ``Scenario``; ``rows_of`` writes it for people.
Invariants: a promise that was not kept is a sentence in ``problems``; ``ok`` is true only without any.
Not here: the comparing (``audit.py``).
Read next: ``audit.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.demo import audit
from headwater.demo.example import PAGE_VIEWS, TOLD

if TYPE_CHECKING:
    from headwater.demo.scenario import Scenario


def account(plot: Scenario) -> dict[str, Any]:
    """The summary of a performance, at its end."""
    kept = [tick for tick, _ in plot.manifests.kept()]
    skipped, again = audit.coverage(plot.seen, plot.log.get_topic(PAGE_VIEWS).end_offsets())
    verified = plot.engine.verified or []
    database = audit.database_problems(plot.server, plot.store)
    sinks = audit.sink_problems(plot.home, plot.store)
    damage = audit.check_problems(plot.log)
    summary: dict[str, Any] = {
        **plot.facts,
        "address": plot.engine.address,
        "events": {name: sum(plot.log.get_topic(name).end_offsets().values()) for name in sorted(_inputs(plot))},
        "ticks": kept[-1] if kept else 0,
        "latency_ms": plot.stopwatch.percentiles(steady=True),
        "latency_whole_run_ms": plot.stopwatch.percentiles(steady=False),
        "corrections": plot.replica.corrections,
        "feed": {"ticks": plot.replica.ticks, "changes": plot.replica.changes},
        "views": [{name: each[name] for name in ("view", "tick", "rows", "equal")} for each in verified],
        "as_in_postgres": not database,
        "sinks_equal": not sinks,
        "alerts": len(list(plot.log.get_topic(TOLD).rows())),
        "page_views_skipped": skipped,
        "page_views_seen_again": again,
        "check_ok": not damage,
    }
    served = {tuple(row[name] for name in plot.replica.key): row for row in _revenue(plot)}
    promises = [
        (bool(verified), "the views were not verified"),
        (
            all(each["equal"] for each in verified),
            "views that are not what the log gives: "
            + ", ".join(each["view"] for each in verified if not each["equal"]),
        ),
        (kept == list(range(1, len(kept) + 1)), "a tick is missing, or was committed twice"),
        (plot.replica.rows == served, "what the change feed adds up to is not what the serving store holds"),
        (skipped == 0, f"the consumers skipped {skipped} page views"),
    ]
    broken = [sentence for kept_so, sentence in promises if not kept_so]
    told = [*plot.problems, *plot.engine.problems, *plot.crew.failures, *plot.replica.problems]
    problems = list(dict.fromkeys([*told, *broken, *database, *sinks, *damage]))
    return {**summary, "problems": problems, "ok": not problems}


def _inputs(plot: Scenario) -> set[str]:
    return set(plot.store.frontier.frontier)


def _revenue(plot: Scenario) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = plot.store.query("SELECT * FROM revenue").to_pylist()
    return rows


def rows_of(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary for people: what, and how much."""
    events, feed, straggler = summary["events"], summary["feed"], summary.get("straggler")
    equal = sum(each["equal"] for each in summary["views"])
    rows = [
        ("events in the log", f"{sum(events.values()):,}, of {len(events)} tables and topics"),
        ("ticks", f"{summary['ticks']:,}"),
        ("commit in PostgreSQL → in the views", latency(summary["latency_ms"])),
        ("  … in the whole run, the kill included", latency(summary["latency_whole_run_ms"])),
        ("first views on screen after", f"{summary.get('first_views_seconds', '?')} s"),
        ("corrections of minutes that were over", f"{summary['corrections']:,}"),
        (
            "consumer killed, taken over after",
            f"{summary.get('takeover_seconds', '?')} s, "
            f"{summary['page_views_skipped']} events skipped, {summary['page_views_seen_again']:,} seen again",
        ),
        ("engine killed, back after", f"{summary.get('engine_back_seconds', '?')} s"),
        ("alerts told", f"{summary['alerts']}"),
        ("change feed", f"{feed['changes']:,} changes in {feed['ticks']} ticks, added up as served"),
        ("sinks equal to their views", "SQLite and search: " + ("yes" if summary["sinks_equal"] else "no")),
        (
            "views as PostgreSQL computes them",
            f"{', '.join(audit.IN_THE_DATABASE)}: " + ("yes" if summary["as_in_postgres"] else "no"),
        ),
        ("views that are what the log gives", f"{equal} of {len(summary['views'])}"),
        ("check of every byte", "clean" if summary["check_ok"] else "damage"),
    ]
    if straggler is not None:
        late = f"{straggler['before']} → {straggler['after']} by an order of {straggler['amount']}"
        rows.insert(6, ("a straggler, for instance", late))
    return rows


def latency(found: dict[str, Any]) -> str:
    """A latency in words.

    >>> latency({"p50": 1200, "p95": 2100, "samples": 40})
    'p50 1,200 ms, p95 2,100 ms (40 commits)'
    """
    if not found["samples"]:
        return "not measured"
    return f"p50 {found['p50']:,} ms, p95 {found['p95']:,} ms ({found['samples']:,} commits)"
