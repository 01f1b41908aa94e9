"""``python -m bench.state_bench``: a day of events under a horizon of ten minutes: does what is kept stay flat?

What it is: a stream of 24 hours of event time, as fast as ticks go, into three views with a horizon: counts by minute
and country, the largest amount by minute and country, and searches without a click within ten minutes; the sizes of
state, log and memory, hour by hour, for people and in ``bench/out/state.json``.
Invariants: the views are compared with what was sent at the end; "state" is what the newest manifest lists, without the
rows that the views show, which are results and grow with them ("state on disk" also has what is not listed any more,
and caches); the log has retention by bytes, and what is being written comes on top of it: two segments.
Not here: rates (``bench/time_bench.py``).
Read next: ``docs/time.md``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import headwater as hw
from bench import report
from bench.report import Measurement
from headwater.views.state import state_store
from headwater.views.state.manifest_entries import folder_name
from headwater.views.tick import engine

OUT = Path(__file__).parent / "out" / "state.json"
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HORIZON, BOUND = "10 minutes", "10 MINUTES"
COUNTRIES = np.array(["AT", "BE", "CH", "DE", "ES", "FR", "IT", "NL"])
KEPT = {"segment_bytes_max": 4 << 20, "retention_bytes": 16 << 20}
TOLERATED = 1.2  # of the largest size in the first four hours
# History is kept for a thousand ticks, and files for an hour, which is hours of this stream: not what is asked here.
TICKS_KEPT, UNLISTED_SECONDS = 20, 0


def declared(app: hw.App) -> tuple[hw.Topic, hw.Topic]:
    """The topics and views."""
    searches = app.topic(
        "searches", "id BIGINT, country STRING, amount INT, at TIMESTAMP", event_time="at", lateness="1 minute", **KEPT
    )
    clicks = app.topic("clicks", "search_id BIGINT, at TIMESTAMP", event_time="at", lateness="1 minute", **KEPT)
    grouped = "FROM searches GROUP BY window(at, '1 minute'), country"
    app.view("counts", f"SELECT window.start AS minute, country, count(*) AS n {grouped}", horizon=HORIZON)
    app.view(
        "largest", f"SELECT window.start AS minute, country, percentile(amount, 0.9) AS p {grouped}", horizon=HORIZON
    )
    app.view(
        "unclicked",
        f"""
        SELECT s.id, s.at AS searched_at FROM searches s
        LEFT JOIN clicks c ON c.search_id = s.id AND c.at BETWEEN s.at AND s.at + INTERVAL {BOUND}
        WHERE c.search_id IS NULL""",
        emit="final",
        closes=f"searched_at + INTERVAL {BOUND}",
    )
    return searches, clicks


class Stream:
    """Searches of which nine of ten are clicked, both up to a minute out of order."""

    def __init__(self, rate: int) -> None:
        self.random = np.random.default_rng(7)
        self.rate = rate
        self.sent = 0
        self.minutes: Counter[tuple[int, str]] = Counter()
        self.unclicked: set[int] = set()

    def lot(self, start_s: float, seconds: float) -> tuple[pa.Table, pa.Table]:
        """The rows of some seconds."""
        count = int(self.rate * seconds)
        ids = np.arange(self.sent, self.sent + count)
        self.sent += count
        at = start_s + self.random.random(count) * seconds - self.random.random(count) * 50
        at = np.maximum(at, 0.0)
        country = COUNTRIES[self.random.integers(0, len(COUNTRIES), count)]
        clicked = self.random.random(count) < 0.9
        self.minutes.update(zip((at // 60).astype(int).tolist(), country.tolist(), strict=True))
        self.unclicked.update(ids[~clicked].tolist())
        searches = pa.table(
            {
                "id": ids,
                "country": country,
                "amount": self.random.integers(0, 100, count).astype(np.int32),
                "at": _moments(at),
            }
        )
        later = at[clicked] + self.random.random(int(clicked.sum())) * 20
        return searches, pa.table({"search_id": ids[clicked], "at": _moments(later)})


def _moments(seconds: np.ndarray) -> pa.Array:
    micros = (seconds * 1e6).astype(np.int64) + int(START.timestamp()) * 1_000_000
    return pa.array(micros).cast(pa.timestamp("us", tz="UTC"))


def sizes(app: hw.App, home: Path) -> dict[str, float]:
    """What is kept now, in megabytes."""
    manifest = app._runtime.engine.manifest
    state = sum(
        file[1]
        for name, entry in manifest.relations.items()
        if name not in manifest.views
        for run in entry["runs"]
        for file in run["files"]
    )
    shown = sum(file[1] for name in manifest.views for run in manifest.relations[name]["runs"] for file in run["files"])
    results = {folder_name(name, manifest.relations[name]["identity"]) for name in manifest.views}
    disk = sum(
        path.stat().st_blocks * 512
        for path in (home / "views").rglob("*")
        if path.is_file() and path.parent.name not in results and not path.name.startswith("serving.sqlite")
    )
    log = sum(path.stat().st_size for path in (home / "topics").rglob("*") if path.is_file())
    process = psutil.Process()
    memory = [part.memory_info().rss for part in (process, *process.children(recursive=True))]
    found = {
        "state": state,
        "results": shown,
        "state on disk": disk,
        "log": log,
        "memory": sum(memory),
        "Python": memory[0],
    }
    return {name: value / 1e6 for name, value in found.items()}


def main() -> None:
    """Run the day, print a table, write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--rate", type=int, default=20, help="searches a second")
    parser.add_argument("--step", type=int, default=60, help="seconds of event time in a tick")
    given = parser.parse_args()
    engine.TICKS_KEPT, engine.PRUNE_TICKS = TICKS_KEPT, 20
    state_store.UNLISTED_SECONDS_MAX = state_store.RELEASED_SECONDS_MAX = UNLISTED_SECONDS
    with tempfile.TemporaryDirectory(prefix="headwater-bench-state-") as folder:
        found = day(Path(folder), given.hours, given.rate, given.step)
    report.write(found, OUT)


def day(home: Path, hours: int, rate: int, step: int) -> list[Measurement]:
    """The measurements of one day."""
    table = Table(title="megabytes, hour by hour", title_justify="left")
    rows: list[dict[str, float]] = []
    stream = Stream(rate)
    app = hw.App("day", home=home, spark={"spark.driver.memory": "2g"})
    searches, clicks = declared(app)
    for number in range(hours * 3600 // step):
        for topic, lot in zip((searches, clicks), stream.lot(number * step, step), strict=True):
            topic.append(lot)
        app.tick()
        if (number + 1) * step % 3600 == 0:
            app.log.maintain()
            rows.append(sizes(app, home))
            print(
                f"hour {len(rows)}: " + ", ".join(f"{name} {value:,.1f} MB" for name, value in rows[-1].items()),
                flush=True,
            )
    check(app, stream)
    app.close()
    for name in ("hour", *rows[0]):
        table.add_column(name, justify="right")
    for hour, row in enumerate(rows, start=1):
        table.add_row(str(hour), *(f"{value:,.1f}" for value in row.values()))
    Console().print(table)
    found = []
    most = max(row["log"] for row in rows) * 1e6 / (2 * (KEPT["retention_bytes"] + 2 * KEPT["segment_bytes_max"]))
    found.append(Measurement("log beside its retention", round(most, 2), "x, at most", 1.0, most <= 1))
    for name in ("state", "state on disk", "memory"):
        # Files that nobody lists any more go some ticks later: sizes rise and fall a little.
        first, last = max(row[name] for row in rows[:4]), max(row[name] for row in rows[4:] or rows)
        found.append(Measurement(f"{name}, largest of the first 4 hours", round(first, 2), "MB"))
        holds = last <= TOLERATED * first
        found.append(
            Measurement(
                f"{name}, largest after hour 4 beside it", round(last / first, 2), "x, at most", TOLERATED, holds
            )
        )
        told = "holds" if holds else "does not hold"
        Console().print(f"{name}: {last / first:.2f} times the first 4 hours at most (bar {TOLERATED}): {told}")
    return found


def check(app: hw.App, stream: Stream) -> None:
    """Compare the views with what was sent. Rows may be a minute out of order, so none was late."""
    for name in ("counts", "largest", "unclicked"):
        late = app.get_view(name).late_rows()
        if late:
            raise AssertionError(f"{name} has late rows: {late}")
    counts = {
        (int((row["minute"] - START).total_seconds() // 60), row["country"]): row["n"]
        for row in app.get_view("counts").to_arrow().to_pylist()
    }
    if counts != dict(stream.minutes):
        raise AssertionError("the counts are not what was sent")
    if app.get_view("largest").to_arrow().num_rows != len(stream.minutes):
        raise AssertionError("the percentiles are not those of the minutes that were sent")
    shown = set(app.get_view("unclicked").to_arrow().column("id").to_pylist())
    if not shown <= stream.unclicked or len(shown) < 0.9 * len(stream.unclicked):
        raise AssertionError("the searches without a click are not what was sent")


if __name__ == "__main__":
    main()
