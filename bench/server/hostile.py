"""A hostile key: what a client that may only query does to a server whose app ticks.

What it is: ``STORE`` and ``SPARK``, queries that were made to end a server, hold it up or fill its memory; ``hostile``,
which sends them from several threads for some minutes while rows are appended and ticked.
Invariants: a real ``headwater serve`` with keys and its engine; the attacker's key has the scope query alone. Ticks,
readiness and memory are looked at from outside, twice a second, with another key, which asks a query of its own too.
Not here: queries of honest clients (``demo/roles.py``).
Read next: ``docs/server.md``, ``src/headwater/server/queries/query_workers.py``.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.server.parts import app_of
from bench.views.scale import Lines
from headwater.server.http.keys import Keys
from tests.services.server.processes import APP, ServerProcess
from tests.waiting import eventually

ROWS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)"
# Each for a way of its own to cost too much.
STORE = [
    "SELECT fts3_tokenizer('simple', x'4141414141414141')",
    "SELECT token FROM fts3tokenize WHERE input = 'a'",
    f"{ROWS} SELECT n, printf('%.*c', 100000, 'x') AS s FROM c",
    "SELECT printf('%.*c', 900000000, 'x') AS s",
    "SELECT length(replace(hex(zeroblob(8000000)), '0', printf('%.*c', 100000, 'x')))",
    f"{ROWS} SELECT group_concat(printf('%.*c', 100000, 'x')) FROM c",
    f"{ROWS} SELECT count(*) FROM c",
    f"{ROWS} SELECT n FROM c ORDER BY random()",
    f"{ROWS} SELECT DISTINCT hex(n) || printf('%.*c', 1000, 'x') FROM c",
    f"{ROWS} SELECT json_group_array(printf('%.*c', 10000, 'x')) FROM c",
    f"{ROWS} SELECT a.n FROM c AS a JOIN c AS b JOIN c AS d ON a.n = b.n + d.n",
    "WITH RECURSIVE c(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM c) SELECT max(length(s)) FROM c",
    "SELECT printf('%.*c', 900, 'a') LIKE '%' || replace(printf('%.*c', 300, 'a'), 'a', 'a%') || 'b'",
    "SELECT " + ", ".join(f"zeroblob(1000000) AS b{n}" for n in range(500)),
    "SELECT load_extension('x')",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM dbstat",
    "ATTACH 'x.sqlite' AS x",
    "PRAGMA temp_store_directory = '/'",
    "SELECT " + "abs(" * 450 + "1" + ")" * 450,
]
SPARK = [
    "SELECT concat(repeat('x', 1000000), id) AS s FROM range(10000)",
    "SELECT sequence(1, 1000000000) AS s",
    "SELECT repeat('x', 2000000000) AS s",
    "SELECT collect_list(id) AS s FROM range(1000000000)",
    "SELECT count(*) FROM range(10000000) a CROSS JOIN range(10000000) b",
    "SELECT /*+ BROADCAST(b) */ count(*) FROM range(10) a JOIN range(200000000) b ON a.id = b.id",
    "SELECT a.id FROM range(3000000) a CROSS JOIN range(3000000) b ORDER BY hash(a.id, b.id) DESC",
    "SELECT array_repeat(array_repeat(1, 100000), 100000) AS s",
    "SELECT rpad('x', 2000000000, 'y') AS s",
    "SELECT count(DISTINCT concat(id, repeat('x', 10000))) FROM range(100000000)",
    "SELECT explode(sequence(1, 400000000)) AS s ORDER BY 1 DESC",
    "SELECT aggregate(sequence(1, 100000000), 0L, (a, x) -> a + x) AS s",
    "SELECT reflect('java.lang.System', 'exit', 0)",
    "SELECT * FROM parquet.`/etc/passwd`",
    "SELECT regexp_replace(repeat('a', 40), '(a+)+$', 'b') || regexp_like(repeat('a', 40) || 'b', '(a+)+$') AS s",
    "SELECT " + " + ".join(f"cos({n})" for n in range(3000)) + " AS s",
]
THREADS = {"store": 4, "spark": 3}
LOOK_S = 0.5
TICK_GAP_MAX_S = 30.0
SERVER_MB_MAX, ENGINES_MB_MAX = 500.0, 8_000.0


@dataclass
class Seen:
    """What was seen from outside."""

    ticks: list[tuple[float, int]] = field(default_factory=list)  # when each number was seen first
    ready: Counter[int] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    honest: Counter[int] = field(default_factory=Counter)  # the other key's queries, by status
    honest_s: float = 0.0  # the longest that one of them took
    server_mb: float = 0.0
    others_mb: float = 0.0
    queries_mb: float = 0.0
    engine_starts: int = 0

    def longest_gap(self) -> float:
        """Seconds between two ticks."""
        moments = [when for when, _ in self.ticks]
        return max((later - earlier for earlier, later in itertools.pairwise(moments)), default=float("inf"))


@dataclass(frozen=True)
class Siege:
    """How long, and against what."""

    seconds: float = 600.0
    store: tuple[str, ...] = tuple(STORE)
    spark: tuple[str, ...] = tuple(SPARK)
    timeout: float = 10.0  # that the attacker asks for


def hostile(siege: Siege, folder: Path) -> Lines:
    """Run it, and judge."""
    seen = besieged(siege, folder)
    lines = Lines()
    minutes = siege.seconds / 60
    lines.figure("lasted", minutes, "minutes")
    lines.figure("ticks", len(seen.ticks), "")
    lines.at_most("longest time between two ticks", seen.longest_gap(), TICK_GAP_MAX_S, "s, at most")
    lines.at_most("starts of the engine", seen.engine_starts, 1, "at most")
    lines.at_most("readiness other than 200", sum(seen.ready.values()) - seen.ready[200], 0, "samples, at most")
    lines.figure("readiness 200", seen.ready[200], "samples")
    refused = sum(seen.honest.values()) - seen.honest[200]
    lines.at_most("queries of another key not answered", refused, 0, "at most")
    lines.figure("queries of another key answered", seen.honest[200], "")
    lines.figure("the longest of them", seen.honest_s, "s")
    lines.at_most("memory of the server, highest", seen.server_mb, SERVER_MB_MAX, "MB, at most")
    lines.at_most("memory of its children in all, highest", seen.others_mb, ENGINES_MB_MAX, "MB, at most")
    lines.figure("memory of the processes of queries, highest", seen.queries_mb, "MB")
    for outcome, count in sorted(seen.answers.items()):
        lines.figure(f"queries: {outcome}", count, "")
    lines.at_most("queries without an answer", seen.answers["no answer"], 0, "at most")
    return lines


def besieged(siege: Siege, folder: Path) -> Seen:
    """The siege, and what was seen."""
    import os

    home, file = folder / "home", folder / "keys.json"
    os.environ["SERVED_SHOP_HOME"] = str(home)
    app_of(APP).close()
    attacker, owner = Keys(file).add("attacker", ["query"]), Keys(file).add("owner", ["admin"])
    server = ServerProcess(home, "--key-file", str(file), engine=True)
    server.http.headers["authorization"] = f"Bearer {owner}"
    seen, over = Seen(), threading.Event()
    try:
        eventually(lambda: server.http.get("/health/ready").status_code == 200, seconds=120)
        _append(server, 0)
        eventually(lambda: server.get("/v1/status")["tick"]["tick"], seconds=120)
        threads = [
            threading.Thread(target=_attack, args=(server.address, attacker, engine, siege, number, over, seen))
            for engine, count in THREADS.items()
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + siege.seconds
        for number in itertools.count(1):
            if time.monotonic() > deadline:
                break
            _append(server, number)
            _look(server, seen)
            time.sleep(LOOK_S)
        over.set()
        for thread in threads:
            thread.join()
    finally:
        over.set()
        server.stop()
    return seen


def _append(server: ServerProcess, number: int) -> None:
    server.post("/v1/topics/orders/records", [{"order_id": number, "country": f"c{number % 7}", "amount": number}])


def _look(server: ServerProcess, seen: Seen) -> None:
    status = server.get("/v1/status")
    tick = status["tick"]["tick"]
    if not seen.ticks or seen.ticks[-1][1] != tick:
        seen.ticks.append((time.monotonic(), tick))
    seen.ready[server.http.get("/health/ready").status_code] += 1
    began = time.monotonic()
    seen.honest[server.http.post("/v1/query", json={"sql": "SELECT count(*) AS n FROM revenue"}).status_code] += 1
    seen.honest_s = max(seen.honest_s, time.monotonic() - began)
    seen.engine_starts = max(seen.engine_starts, status["engine"]["starts"])
    process = psutil.Process(server.process.pid)
    seen.server_mb = max(seen.server_mb, process.memory_info().rss / 1e6)
    sizes = {"all": 0.0, "queries": 0.0}
    for child in process.children(recursive=True):
        try:
            size = child.memory_info().rss / 1e6
            sizes["all"] += size
            sizes["queries"] += size if "store_worker" in " ".join(child.cmdline()) else 0.0
        except psutil.Error:
            continue
    seen.others_mb = max(seen.others_mb, sizes["all"])
    seen.queries_mb = max(seen.queries_mb, sizes["queries"])


def _attack(address: str, key: str, engine: str, siege: Siege, number: int, over: threading.Event, seen: Seen) -> None:
    queries = siege.store if engine == "store" else siege.spark
    with httpx.Client(base_url=address, headers={"authorization": f"Bearer {key}"}, timeout=180) as http:
        for sql in itertools.islice(itertools.cycle(queries), number * len(queries) // THREADS[engine], None):
            if over.is_set():
                return
            body: dict[str, Any] = {"sql": sql, "engine": engine, "timeout": siege.timeout}
            try:
                answer = http.post("/v1/query", json=body)
                outcome = "answered" if answer.status_code == 200 else json.loads(answer.text)["error"]["code"]
            except (httpx.HTTPError, ValueError):
                outcome = "no answer"
            seen.answers[f"{engine}: {outcome}" if outcome != "no answer" else outcome] += 1
