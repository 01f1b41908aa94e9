"""The files that peers read: the shop's base and its lots of changes, in each peer's own form.

What it is: writers of CSV with a column ``is_upsert`` (Pathway) and of Debezium's JSON envelope (Flink SQL).
Invariants: all changes to one key are in one file, and a file of JSON stays below 32 MB: Flink cuts larger ones
into pieces and reads them in any order. Amounts are written as they are for Flink, and as whole quarters for Pathway,
whose sums of floats came out wrong after updates (seen with 0.33.0).
Not here: running the peers (``views/state/run.py``).
Read next: ``views/state/run.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from bench.views.shop import Answer, Lot, Shop

FILE_ROWS_MAX = 100_000  # about 15 MB of JSON
QUARTERS = 4

Writer = Callable[[Path, str, pa.Table, "pa.Table | None", "pa.Table | None"], None]


def write_base(folder: Path, shop: Shop, write: Writer) -> None:
    """The shop as it is now, into ``folder/orders`` and ``folder/users``."""
    write(folder / "orders", "base", pa.concat_tables(shop.order_batches()), None, None)
    write(folder / "users", "base", shop.users(), None, None)


def write_lot(folder: Path, number: int, lot: Lot, write: Writer) -> None:
    """One lot of changes, into ``folder/orders`` and ``folder/users``."""
    write(folder / "orders", f"changes-{number}", lot.put, lot.put_before, lot.deleted)
    write(folder / "users", f"changes-{number}", lot.moved, lot.moved_before, None)


def write_answers(folder: Path, answers: Iterable[Answer], *, quarters: bool) -> None:
    """What the peer must arrive at: after the base, then after each lot."""
    scale = QUARTERS if quarters else 1
    listed = [{c: [revenue * scale, orders] for c, (revenue, orders) in answer.items()} for answer in answers]
    (folder / "answers.json").write_text(json.dumps(listed))


def write_csv(folder: Path, name: str, put: pa.Table, _before: pa.Table | None, deleted: pa.Table | None) -> None:
    """One CSV: what is put, then what is deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [put.append_column("is_upsert", pa.array(np.ones(put.num_rows, dtype=bool)))]
    if deleted is not None:
        pieces.append(deleted.append_column("is_upsert", pa.array(np.zeros(deleted.num_rows, dtype=bool))))
    rows = pa.concat_tables(pieces)
    if not rows.num_rows:
        return
    if "amount" in rows.column_names:
        place = rows.column_names.index("amount")
        rows = rows.set_column(place, "amount", pc.multiply(rows["amount"], QUARTERS).cast(pa.int64()))
    # "id" is a word of Pathway's own.
    rows = rows.rename_columns(["user" if column == "id" else column for column in rows.column_names])
    pyarrow.csv.write_csv(rows, folder / f"{name}.csv")


def write_debezium(folder: Path, name: str, put: pa.Table, before: pa.Table | None, deleted: pa.Table | None) -> None:
    """Lines of ``{"before": …, "after": …, "op": …}``, cut into files by key."""
    folder.mkdir(parents=True, exist_ok=True)
    key = put.column_names[0]
    old = dict(zip(before[key].to_pylist(), _objects(before), strict=True)) if before is not None else {}
    lines: list[tuple[int, str]] = []
    for number, row in zip(put[key].to_pylist(), _objects(put), strict=True):
        was = old.get(number)
        lines.append((number, f'{{"before":{was or "null"},"after":{row},"op":"{"u" if was else "c"}"}}\n'))
    if deleted is not None:
        for number, row in zip(deleted[key].to_pylist(), _objects(deleted), strict=True):
            lines.append((number, f'{{"before":{row},"after":null,"op":"d"}}\n'))
    count = max(2, -(-len(lines) // FILE_ROWS_MAX))
    for part in range(count):
        chosen = "".join(line for number, line in lines if number % count == part)
        if chosen:  # an empty file would take a reader's time too
            (folder / f"{name}-{part}.json").write_text(chosen)


def _objects(rows: pa.Table) -> list[str]:
    """The rows as JSON objects: numbers and plain words only, so that nothing needs escaping."""
    names = rows.column_names
    quoted = [pa.types.is_string(field.type) for field in rows.schema]
    shape = ",".join(f'"{name}":' + ('"%s"' if text else "%s") for name, text in zip(names, quoted, strict=True))
    columns = [column.to_pylist() for column in rows.columns]
    return ["{" + shape % row + "}" for row in zip(*columns, strict=True)]
