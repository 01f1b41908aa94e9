"""What ticks have let go of is given back."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from headwater.views.tick.freed_memory import HELD_BYTES_MIN, release_memory

# Small blocks with one in use behind them: the C library keeps the pages of the others.
HOLES = """
import ctypes, re
from pathlib import Path
from headwater.views.tick.freed_memory import CALL

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
blocks = [libc.malloc(100_000) for _ in range(600)]
for block in blocks:
    ctypes.memset(block, 1, 100_000)
for block in blocks[:-1]:
    libc.free(block)

def resident():
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M)[1:]
    for each in maps:
        first, last = (int(end, 16) for end in each.split(" ", 1)[0].split("-"))
        if first <= blocks[300] < last:
            return int(re.search(r"Rss: +(\\d+) kB", each)[1])
    return 0

before = resident()
CALL()
print(before, resident())
"""


@pytest.mark.parametrize("call", ["return_freed", "release_memory"])
def test_free_pages_between_blocks_in_use_are_given_back(call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOLES.replace("CALL", call)], capture_output=True, text=True, check=True
    )

    before, after = map(int, done.stdout.split())
    assert before > 50_000  # in KB
    assert after < before - 40_000


def test_rows_that_are_held_by_a_cycle_are_given_back() -> None:
    gc.collect()
    gc.disable()
    try:
        before = pa.total_allocated_bytes()
        cycle: list[Any] = [pa.nulls(HELD_BYTES_MIN // 4, pa.int64())]
        cycle.append(cycle)
        held = pa.total_allocated_bytes() - before
        del cycle

        release_memory()
        left = pa.total_allocated_bytes() - before
    finally:
        gc.enable()

    assert held >= HELD_BYTES_MIN
    assert left < HELD_BYTES_MIN
