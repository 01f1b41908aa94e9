"""``python -m bench.timeline_bench``: the home timeline of ``examples/home_timeline.py``, at size.

What it is: 10 000 people who follow 200 others each, two posts each to begin with, and 100 000 changes in ticks of
1 000: six of ten are posts, one deletes a post, and three follow or unfollow. A table for people and
``bench/out/timeline.json`` for programs.
Invariants: sampled ticks, and the last one, are compared with what DuckDB gives for the same query over the same rows;
a difference ends the run. Reads are of one person's timeline from the serving store, in a fresh order.
Not here: other views (``views_bench.py``).
Read next: ``examples/home_timeline.py``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import resource
import runpy
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from bench import report
from bench.parts import show
from bench.report import Measurement
from bench.views.scale import Lines, percentile

OUT = Path(__file__).parent / "out" / "timeline.json"
EXAMPLE = Path(__file__).parents[1] / "examples" / "home_timeline.py"
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
READ_MS_MAX = 5.0
READS = 1_000
SHARES = {"posts": 0.6, "deletes": 0.1, "follows": 0.15, "unfollows": 0.15}
# As the view has it; DuckDB wants "at" in quotes.
QUERY = """
    SELECT follower, id, author, text, "at" FROM (
        SELECT f.follower, p.id, p.author, p.text, p."at",
               row_number() OVER (PARTITION BY f.follower ORDER BY p."at" DESC, p.id DESC) AS place
        FROM follows f JOIN posts p ON p.author = f.followee)
    WHERE place <= 50
"""


class People:
    """What there is, as plain arrays, and what happens to it."""

    def __init__(self, users: int, each: int) -> None:
        self.random = np.random.default_rng(7)
        self.users = users
        # Everybody follows the people at some distances: all different, and known without a look.
        steps = self.random.choice(users - 1, size=each, replace=False) + 1
        self.follows = {(int(one), int((one + step) % users)) for one in range(users) for step in steps}
        self.posts: dict[int, int] = {}  # id → author
        self.next_id = 0

    def post(self, count: int) -> pa.Table:
        ids = list(range(self.next_id, self.next_id + count))
        authors = self.random.integers(0, self.users, count).tolist()
        self.next_id += count
        self.posts.update(zip(ids, authors, strict=True))
        times = [START + dt.timedelta(seconds=number // 3) for number in ids]  # some at the same moment
        at = pa.array(times, pa.timestamp("us", tz="UTC"))
        texts = [f"post {number} of {author}" for number, author in zip(ids, authors, strict=True)]
        return pa.table({"id": ids, "author": authors, "text": texts, "at": at})

    def delete(self, count: int) -> pa.Table:
        known = np.fromiter(self.posts, dtype=np.int64)
        ids = self.random.choice(known, size=min(count, len(known)), replace=False).tolist()
        for number in ids:
            del self.posts[number]
        return pa.table({"id": ids})

    def follow(self, count: int) -> pa.Table:
        new: set[tuple[int, int]] = set()
        while len(new) < count:
            one, other = (int(each) for each in self.random.integers(0, self.users, 2))
            if one != other and (one, other) not in self.follows:
                new.add((one, other))
        self.follows |= new
        return pairs(sorted(new))

    def unfollow(self, count: int) -> pa.Table:
        known = sorted(self.follows)
        gone = [known[place] for place in self.random.choice(len(known), size=count, replace=False)]
        self.follows.difference_update(gone)
        return pairs(gone)


def pairs(found: list[tuple[int, int]]) -> pa.Table:
    return pa.table({"follower": [one for one, _ in found], "followee": [other for _, other in found]})


def main() -> None:
    """Run, print a table, write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--follows", type=int, default=200, help="of each")
    parser.add_argument("--posts", type=int, default=2, help="of each, to begin with")
    parser.add_argument("--ticks", type=int, default=100)
    parser.add_argument("--changes", type=int, default=1_000, help="in each tick")
    parser.add_argument("--checked", type=int, default=4, help="how many ticks are compared with DuckDB")
    parser.add_argument("--directory", type=Path, help="where all data goes; default: the temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-timeline-", dir=arguments.directory) as folder:
        lines = measure(arguments, Path(folder))
    show("timeline", lines.measurements)
    found: list[Measurement] = lines.measurements
    report.write(found, OUT)
    sys.exit(0 if all(line.holds is not False for line in found) else 1)


def measure(arguments: argparse.Namespace, folder: Path) -> Lines:
    """Fill, tick, compare, read."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["TIMELINE_HOME"] = str(folder / "home")
    people = People(arguments.users, arguments.follows)
    made = runpy.run_path(str(EXAMPLE))
    lines = Lines()
    with made["app"] as app:
        made["follows"].upsert(pairs(sorted(people.follows)))
        made["posts"].upsert(people.post(arguments.users * arguments.posts))
        began = time.perf_counter()
        app.tick()
        lines.figure("first fill", time.perf_counter() - began, "s")
        lines.figure("follows", len(people.follows), "rows")
        checked = set(np.linspace(1, arguments.ticks, arguments.checked, dtype=int).tolist())
        took = []
        for number in range(1, arguments.ticks + 1):
            change(made, people, arguments.changes)
            began = time.perf_counter()
            app.tick()
            took.append(time.perf_counter() - began)
            print(f"tick {number}: {took[-1]:.2f} s, {len(people.posts):,} posts", file=sys.stderr)
            if number in checked:
                compare(app, people, number)
        lines.figure(f"tick of {arguments.changes} changes, p50", percentile(took, 0.5), "s")
        lines.figure(f"tick of {arguments.changes} changes, p95", percentile(took, 0.95), "s")
        lines.figure("changes a second", arguments.changes * len(took) / sum(took), "1/s")
        lines.figure("ticks equal to DuckDB", len(checked), "ticks")
        reads = read(app, people)
        lines.figure("read of one timeline, p50", percentile(reads, 0.5), "ms")
        slow = percentile(reads, 0.95)
        lines.measurements.append(
            Measurement("read of one timeline, p95", round(slow, 3), "ms", READ_MS_MAX, slow <= READ_MS_MAX)
        )
    lines.figure("peak of the Python process", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MB")
    return lines


def change(made: dict, people: People, count: int) -> None:
    """Append so many changes."""
    made["posts"].upsert(people.post(int(count * SHARES["posts"])))
    made["posts"].delete(people.delete(int(count * SHARES["deletes"])))
    made["follows"].upsert(people.follow(int(count * SHARES["follows"])))
    made["follows"].delete(people.unfollow(int(count * SHARES["unfollows"])))


def compare(app: object, people: People, number: int) -> None:
    """Hold the view against DuckDB; raises when they differ."""
    ids = sorted(people.posts)
    follows = pairs(sorted(people.follows))
    authors = [people.posts[each] for each in ids]
    at = pa.array([START + dt.timedelta(seconds=each // 3) for each in ids], pa.timestamp("us", tz="UTC"))
    texts = [f"post {each} of {author}" for each, author in zip(ids, authors, strict=True)]
    posts = pa.table({"id": ids, "author": authors, "text": texts, "at": at})
    found = app.get_view("timeline").to_arrow()  # type: ignore[attr-defined]
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for name, table in (("follows", follows), ("posts", posts), ("found", found)):
            duck.register(name, table)
        duck.execute(f"CREATE TABLE expected AS {QUERY}")
        wanted = duck.sql("SELECT count(*) FROM expected").fetchall()[0][0]
        same = 'SELECT * FROM expected EXCEPT ALL SELECT follower, id, author, text, "at" FROM found'
        missing = duck.sql(f"SELECT count(*) FROM ({same})").fetchall()[0][0]
    if missing or wanted != found.num_rows:
        raise AssertionError(f"tick {number}: {missing} rows are missing, {found.num_rows} are there, not {wanted}")


def read(app: object, people: People) -> list[float]:
    """Milliseconds of point reads."""
    took = []
    for follower in people.random.integers(0, people.users, READS).tolist():
        began = time.perf_counter()
        rows = app.get_view("timeline").get(follower=follower)  # type: ignore[attr-defined]
        took.append((time.perf_counter() - began) * 1e3)
        assert rows
    return took


if __name__ == "__main__":
    main()
