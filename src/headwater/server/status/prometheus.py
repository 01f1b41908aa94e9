"""Metrics: the status as Prometheus reads it.

What it is: ``exposition``, the text of ``GET /metrics``.
Invariants: names and units follow Prometheus' rules (``headwater_…_total``, ``…_seconds``, ``…_bytes``); a label's
value is escaped. Everything is computed from the status; nothing is counted twice.
Not here: the status itself (``status_reader.py``).
Read next: ``status_reader.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

OUTCOMES = ("accepted", "repeated", "rejected", "conflict", "replay_failed", "failed")
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Samples by metric, each with its help and type said once.

    >>> made = Exposition()
    >>> made.add("headwater_topic_rows", "gauge", "Rows that are kept.", 7, topic='a"b')
    >>> print(made.text(), end="")
    # HELP headwater_topic_rows Rows that are kept.
    # TYPE headwater_topic_rows gauge
    headwater_topic_rows{topic="a\\"b"} 7
    """

    def __init__(self) -> None:
        self._metrics: dict[str, list[str]] = {}

    def add(self, name: str, kind: str, help: str, value: float | int | None, **labels: str) -> None:
        """One sample; none where the value is not known."""
        if value is None:
            return
        lines = self._metrics.setdefault(name, [f"# HELP {name} {help}", f"# TYPE {name} {kind}"])
        written = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{written}}} {value:g}" if isinstance(value, float) else f"{name}{_in(written)} {value}")

    def text(self) -> str:
        """The whole page."""
        return "".join(f"{line}\n" for lines in self._metrics.values() for line in lines)


def _in(written: str) -> str:
    return f"{{{written}}}" if written else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def exposition(status: Mapping[str, Any]) -> str:
    """The status as text."""
    made = Exposition()
    tick = status["tick"]
    made.add("headwater_tick", "counter", "The last committed tick.", tick["tick"])
    made.add(
        "headwater_tick_age_seconds",
        "gauge",
        "Since the last tick was committed.",
        tick["age_seconds"],
        app=status["app"],
    )
    made.add("headwater_rows_behind", "gauge", "Rows in the log that no tick has taken.", tick["behind"])
    made.add("headwater_engine_up", "gauge", "Whether the engine runs.", int(status["engine"]["state"] == "running"))
    made.add("headwater_ready", "gauge", "Whether the app is run and gets on.", int(not status["not_ready"]))
    made.add(
        "headwater_engine_stalls_total",
        "counter",
        "Engines that were killed because they did not tick.",
        status["engine"]["stalls"],
    )
    if (drill := status["drill"]) is not None:
        made.add("headwater_drill_ok", "gauge", "Whether the last drill of backups was good.", int(drill["ok"]))
        made.add("headwater_drill_seconds", "gauge", "How long it took.", drill["seconds"])
        made.add(
            "headwater_drill_loss_seconds",
            "gauge",
            "How old the newest backup was at that time.",
            drill["loss_seconds"],
        )
        if drill["good_age_seconds"] is not None:
            made.add("headwater_drill_age_seconds", "gauge", "Since the last good drill.", drill["good_age_seconds"])
    if (standby := status["engine"]["standby"]) is not None:
        made.add("headwater_standby_ready", "gauge", "Whether a standby engine can take over.", int(standby == "ready"))
    made.add("headwater_engine_starts_total", "counter", "Starts of the engine.", status["engine"]["starts"])
    if status["ticks"]:
        last = status["ticks"][-1]
        made.add(
            "headwater_tick_seconds", "gauge", "How long the last tick took.", float(last["seconds"]), app=status["app"]
        )
        for each in last["views"]:
            made.add(
                "headwater_view_tick_seconds", "gauge", "Of it, one view.", float(each["seconds"]), view=each["view"]
            )
            for plan, value in (("reused", each["plans_reused"]), ("made", each["actions"] - each["plans_reused"])):
                made.add(
                    "headwater_view_tick_queries",
                    "gauge",
                    "Spark queries of a view in the last tick, with a plan reused or made.",
                    value,
                    view=each["view"],
                    plan=plan,
                )
            made.add(
                "headwater_view_tick_jobs",
                "gauge",
                "Of these queries, those that were Spark jobs and did not run on the driver's thread.",
                each["jobs"],
                view=each["view"],
            )
    for topic in status["topics"]:
        name = topic["name"]
        ends = sum(topic["end_offsets"].values())
        made.add("headwater_topic_appended_rows_total", "counter", "Rows ever appended.", ends, topic=name)
        made.add("headwater_topic_rows", "gauge", "Rows that are kept.", topic["rows"], topic=name)
        made.add("headwater_topic_bytes", "gauge", "Bytes on disk.", topic["bytes"], topic=name)
        made.add(
            "headwater_topic_dropped_rows_total",
            "counter",
            "Rows that were dropped by the overflow policy.",
            topic["dropped_rows"],
            topic=name,
        )
        for reader in topic["readers"]:
            labels = {"topic": name, "reader": reader["reader"], "reader_kind": reader["kind"]}
            made.add("headwater_reader_lag_rows", "gauge", "Rows that a reader has not read.", reader["lag"], **labels)
            made.add(
                "headwater_reader_retention_ratio",
                "gauge",
                "How far the oldest unread rows are on their way to a retention limit; 1 is due.",
                reader["retention_part"],
                **labels,
            )
        for group in topic["groups"]:
            labels = {"topic": name, "group": group["group"]}
            made.add("headwater_group_lag_rows", "gauge", "Rows that a group has not done.", group["lag"], **labels)
            made.add("headwater_group_members", "gauge", "Living members of a group.", group["members"], **labels)
            made.add(
                "headwater_group_dead_letters_total", "counter", "Messages given up.", group["dead_letters"], **labels
            )
    _commands(made, status["aggregates"])
    for view in status["views"]:
        made.add(
            "headwater_view_paused",
            "gauge",
            "Whether a view failed, or reads one that did, and stands still.",
            int(view["paused"] is not None),
            view=view["name"],
        )
        made.add("headwater_view_rows", "gauge", "Rows of a served view.", view["rows"], view=view["name"])
        made.add("headwater_view_state_bytes", "gauge", "Bytes of a view's state.", view["bytes"], view=view["name"])
    for sink in status["sinks"]:
        labels = {"sink": sink["sink"], "view": sink["view"]}
        made.add("headwater_sink_lag_ticks", "gauge", "Ticks that a sink is behind.", sink["lag"]["ticks"], **labels)
        made.add("headwater_sink_up", "gauge", "Whether a sink follows.", int(sink["state"] == "following"), **labels)
    for inlet in status["inlets"]:
        for what in ("received", "appended", "refused", "dropped"):
            made.add(f"headwater_inlet_{what}_total", "counter", f"Messages {what}.", inlet[what], inlet=inlet["name"])
    made.add("headwater_alerts", "gauge", "Alerts that last.", sum(1 for each in status["alerts"] if each["lasting"]))
    server = status["server"]
    made.add("headwater_connections", "gauge", "Open connections.", server["connections"])
    made.add(
        "headwater_connections_refused_total", "counter", "Connections beyond the limit.", server["refused_connections"]
    )
    made.add(
        "headwater_connections_slow_total", "counter", "Connections that took too long.", server["slow_connections"]
    )
    made.add("headwater_subscriptions", "gauge", "Open subscriptions.", server["subscriptions"])
    made.add(
        "headwater_subscriptions_dropped_total",
        "counter",
        "Subscribers that were too slow.",
        server["dropped_subscriptions"],
    )
    return made.text()


def _commands(made: Exposition, aggregates: Sequence[Mapping[str, Any]]) -> None:
    """Commands that came over HTTP, since the server started."""
    for each in aggregates:
        labels, told = {"aggregate": each["name"]}, each["commands"]
        made.add("headwater_history_rows_total", "counter", "Events and rejected commands.", each["rows"], **labels)
        answered = 0
        for outcome in OUTCOMES:
            answered += told[outcome]
            about = "Commands over HTTP, by what became of them."
            made.add("headwater_commands_total", "counter", about, told[outcome], **labels, outcome=outcome)
        again = "Commands that were decided again, because another one came first."
        made.add("headwater_commands_retried_total", "counter", again, told["retried"], **labels)
        took = "Seconds that commands over HTTP took."
        made.add("headwater_command_seconds_sum", "counter", took, float(told["seconds_total"]), **labels)
        made.add("headwater_command_seconds_count", "counter", took, answered, **labels)
        for quantile in ("p50", "p99"):
            recent = f"Of the last commands over HTTP, {quantile}."
            value = told[f"seconds_{quantile}"]
            made.add(f"headwater_command_seconds_{quantile}", "gauge", recent, value, **labels)
