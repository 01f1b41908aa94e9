"""A writer that will be killed.

What it is: ``write_until_killed``, the body of a child process: it appends to a shared topic for ever, and keeps a
diary in a file of its own: ``sent`` before an append, ``acknowledged`` after it.
Invariants: each line of the diary is one write of the system, so a kill leaves whole lines; a row's number is used
once, by one writer. A named writer begins by trying its last append again if the diary does not say that it ended.
Not here: the killing and the judgement (``test_kill_nine.py``).
Read next: ``test_kill_nine.py``.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.log.home import Log
from tests.crash.ledger import text_of

SCHEMA = "n BIGINT, text STRING"


@dataclass(frozen=True)
class Append:
    """One line of a diary: the numbers ``first`` up to ``first + rows``."""

    first: int
    rows: int
    sequence: int | None
    acknowledged: bool

    @property
    def numbers(self) -> list[int]:
        return list(range(self.first, self.first + self.rows))


def read_diary(path: Path) -> list[Append]:
    """The appends of a diary, in order."""
    appends: dict[int, Append] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        entry = json.loads(line)
        appends[entry["first"]] = Append(**entry)
    return list(appends.values())


def write_until_killed(home: str, diary: str, settings: dict[str, Any], *, number: int, named: bool, seed: int) -> None:
    """Append to ``home`` until somebody ends this process."""
    chance = random.Random(seed)
    past = read_diary(Path(diary))
    fd = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    topic = Log(home).topic("orders", SCHEMA, **settings)
    following = past[-1].first + past[-1].rows if past else number * 1_000_000_000
    sequence = past[-1].sequence + 1 if past and past[-1].sequence is not None else 0

    def append(first: int, rows: int, with_sequence: int | None) -> None:
        entry = {"first": first, "rows": rows, "sequence": with_sequence}
        os.write(fd, json.dumps({**entry, "acknowledged": False}).encode() + b"\n")
        topic.append(
            [{"n": n, "text": text_of(n)} for n in range(first, first + rows)],
            producer=None if with_sequence is None else f"writer {number}",
            sequence=with_sequence,
        )
        os.write(fd, json.dumps({**entry, "acknowledged": True}).encode() + b"\n")

    if named and past and not past[-1].acknowledged:
        append(past[-1].first, past[-1].rows, past[-1].sequence)
    while True:
        rows = chance.choice([1, 1, 2, 5, 20, 60])
        append(following, rows, sequence if named else None)
        following += rows
        sequence += 1
