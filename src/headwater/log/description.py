"""A topic described: what ``topic.describe()`` and ``headwater topic describe`` show.

What it is: the declaration, the offsets and the sizes of one topic, as plain values ready for a table or JSON.
Invariants: it takes no lock and changes nothing; a file that is sealed or dropped while it looks is not counted.
Not here: groups (``groups.py``), whether the files are sound (``check.py``).
Read next: ``topic.py``.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.log.ddl import to_ddl

if TYPE_CHECKING:
    from headwater.log.topic import Topic


def describe_topic(topic: Topic) -> dict[str, Any]:
    """Everything a person may want to know of a topic."""
    row = topic.log.registry.find(topic.name) or topic.row()
    starts, ends = topic.start_offsets(), topic.end_offsets()
    sealed = topic.log.catalog.read(
        "SELECT partition, count(*) AS n, sum(bytes) AS bytes FROM segments WHERE topic_id = ? GROUP BY partition",
        (topic.id,),
    )
    by_partition = {r["partition"]: r for r in sealed}
    partitions = []
    for number in range(row.settings.partitions):
        arrow = _sizes(topic.directory / str(number), ".arrow")
        known = by_partition.get(number)
        partitions.append({
            "partition": number, "start_offset": starts[number], "end_offset": ends[number],
            "rows": ends[number] - starts[number], "sealed_segments": known["n"] if known else 0,
            "sealed_bytes": known["bytes"] if known else 0, "arrow_segments": len(arrow), "arrow_bytes": sum(arrow),
        })  # fmt: skip
    return {
        "name": topic.name, "schema": to_ddl(row.schema), "schema_version": row.version,
        "settings": asdict(row.settings), "created_at": format_us(row.created_us),
        "dropped_rows": row.dropped_rows, "partitions": partitions,
    }  # fmt: skip


def _sizes(directory: Path, suffix: str) -> list[int]:
    sizes = []
    for path in directory.glob(f"*{suffix}"):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sizes
