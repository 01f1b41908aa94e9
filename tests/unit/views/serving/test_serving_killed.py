"""The serving store's writer killed with ``kill -9``: whole ticks stay, and the next process goes on where it was."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa

from headwater.views.serving.serving_store import ServingStore

ROOT = Path(__file__).parents[4]
KILLS = 5 * int(os.environ.get("HEADWATER_THOROUGH", "1"))
ROWS = 60


def content(tick: int) -> Counter[tuple[int, int]]:
    """What the views hold after a tick: a function of the tick, so that anybody can judge."""
    chance = random.Random(tick)
    return Counter({(number, chance.randrange(3)): 1 for number in chance.sample(range(ROWS * 2), ROWS)})


def changes(tick: int) -> pa.Table:
    moved = content(tick)
    moved.subtract(content(tick - 1) if tick else {})
    rows = [{"id": number, "value": value, "_weight": many} for (number, value), many in moved.items() if many]
    return pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), ("value", pa.int64()), ("_weight", pa.int64())]))


def write_until_killed(path: str) -> None:
    """Apply ticks for ever; begin with those that may have been applied already."""
    store = ServingStore(path)
    columns = [("id", "BIGINT"), ("value", "BIGINT")]
    for view, key in (("keyed", ["id"]), ("bag", [])):
        store.declare(view, columns, key)
    tick = max(0, store.tick - 2)
    while True:
        if tick % 7 == 3 and store.tick == tick - 1:  # a bulk load now and then, of the rows that are there
            rows = [{"id": number, "value": value} for number, value in content(tick - 1)]
            store.reset("bag", pa.Table.from_pylist(rows).to_reader(max_chunksize=10))
        store.apply(tick, 1, {"orders": {0: tick}}, {"keyed": changes(tick), "bag": changes(tick)})
        tick += 1


def test_a_killed_writer_leaves_whole_ticks_and_the_next_goes_on(tmp_path: Path) -> None:
    path, chance = tmp_path / "serving.sqlite", random.Random(11)
    code = "import sys; from tests.unit.views.serving.test_serving_killed import *; write_until_killed(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    ticks = [-1]

    for _ in range(KILLS):
        writer = subprocess.Popen([sys.executable, "-c", code, str(path)], env=environment)
        with ServingStore(path) as store:
            assert store.wait(ticks[-1] + chance.randrange(1, 30), timeout=60)
            writer.send_signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
            ticks.append(store.tick)
            found = {
                view: Counter(tuple(row.values()) for row in store.query(f"SELECT * FROM {view}").to_pylist())
                for view in ("keyed", "bag")
            }
            assert found["keyed"] == found["bag"] == content(store.tick)
            assert str(store.frontier) == f"orders:0={store.tick}"

    assert ticks == sorted(set(ticks))
