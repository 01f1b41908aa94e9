"""Tick reports: the last ones, by app, and never in the way of a tick."""

from __future__ import annotations

import pytest

from headwater.errors import CatalogBusy
from headwater.log.home import Log
from headwater.views.tick.evaluate import ViewProgress
from headwater.views.tick.reports import KEPT, PlanCounts, TickReport, TickReports, plan_counts


def report(tick: int) -> TickReport:
    return TickReport(tick, 7, 0.25, (ViewProgress("revenue", 3, 10, 3, 0.125, 2, 1),), {}, 5)


def test_the_last_reports_are_kept_by_app(log: Log) -> None:
    shop, other = TickReports(log.catalog, "shop"), TickReports(log.catalog, "other")
    for tick in range(1, KEPT + 11):
        shop.save(report(tick), tick * 1_000_000)
    other.save(report(1), 0)

    kept = shop.last(10_000)

    assert [each["tick"] for each in kept] == list(range(11, KEPT + 11))
    assert [each["tick"] for each in shop.last(2)] == [KEPT + 9, KEPT + 10]
    assert kept[0]["views"] == [
        {"view": "revenue", "changes": 3, "rows_read": 10, "actions": 3, "plans_reused": 2, "jobs": 2, "seconds": 0.125}
    ]
    assert plan_counts(kept, "revenue") == PlanCounts(KEPT, reused=2 * KEPT, made=KEPT, jobs=2 * KEPT)
    assert plan_counts(kept, "another") == PlanCounts()
    assert [each["tick"] for each in other.last(10)] == [1]


def test_a_catalog_that_is_busy_costs_a_report_and_no_tick(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(**_: object) -> None:
        raise CatalogBusy("the catalog is busy")

    reports = TickReports(log.catalog, "shop")
    monkeypatch.setattr(log.catalog, "write", busy)

    reports.save(report(1), 0)

    assert reports.last(1) == []
