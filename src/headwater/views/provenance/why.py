"""Why: from a row of a view down to the input events behind it.

What it is: ``why`` finds the row at a tick and walks down: through the stages of its view, the last one first, then of
the views that these read, to topics and tables. A stage is visited once, when all that read it have been.
Invariants: nothing is changed and no app is taken over. All that is read is of one tick, also of an earlier one. The
views are taken with the queries that they had at that tick.
Not here: one step (``stage_lineage.py``), the records (``input_events.py``).
Read next: ``stage_lineage.py``, ``docs/why.md``.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import Misuse, UnknownRow
from headwater.hints import suggestion
from headwater.log.schema.ddl import parse_view_ddl
from headwater.log.schema.far_times import far_json_rows, far_rows
from headwater.log.schema.json_lines import json_line
from headwater.log.schema.row_conversion import to_batches, to_rows
from headwater.views.provenance.input_events import input_events
from headwater.views.provenance.provenance import Provenance, ProvenanceInput, ProvenanceStep
from headwater.views.provenance.relation_rows import RelationRows
from headwater.views.provenance.stage_lineage import EVERYTHING, Demand, StageLineage
from headwater.views.serving.snapshot import RelationSnapshot
from headwater.views.state.algebra import expand
from headwater.views.state.manifest import ViewEntry
from headwater.views.tick.prepare import PreparedView

ROWS_MAX = 1_000  # rows of a view that are explained together
EVENTS_MAX = 10_000
EVENTS_SHOWN = 20


def wanted_values(
    view: str, about: ViewEntry, key: Sequence[Any], columns: Mapping[str, Any], *, as_text: bool = False
) -> pa.Table:
    """The key, or values of some columns, as a table of one row with the view's types.

    With ``as_text`` values are texts, as a command line or an address has them; of a key it may be COLUMN=VALUE, too.
    """
    schema = parse_view_ddl(about["columns"])
    own = list(about["key"])
    if as_text and key and all("=" in word and word.split("=", 1)[0] in schema.names for word in key):
        named: dict[str, Any] = {name: value for name, _, value in (str(word).partition("=") for word in key)}
        key, columns = (), {**named, **columns}
    if key and len(key) != len(own):
        given = "1 value was given" if len(key) == 1 else f"{len(key)} values were given"
        by = f"by columns, as in {schema.names[0]}=VALUE"
        if not own:
            raise Misuse(f'view "{view}" has no key, and {given}', hint=f"Name the row {by}.", view=view)
        raise Misuse(
            f'the key of view "{view}" is ({", ".join(own)}), and {given}',
            hint=f"Give a value for each column of the key, or name the row {by}.",
            view=view,
        )
    wanted = {**dict(zip(own, key, strict=False)), **columns}
    for name in wanted:
        if name not in schema.names:
            raise Misuse(f'view "{view}" has no column "{name}"', hint=suggestion(name, schema.names), view=view)
    if not wanted and own:
        raise Misuse(f'which row of view "{view}"?', hint=f"Give its key: {', '.join(own)}.", view=view)
    typed = pa.schema([schema.field(name) for name in wanted])
    if as_text:
        batch = far_json_rows([{name: _from_text(value, typed.field(name)) for name, value in wanted.items()}], typed)
    else:
        far = any(type(value) is int and kinds.is_temporal(typed.field(name).type) for name, value in wanted.items())
        batch = far_rows([wanted], typed) if far else to_batches([wanted], typed)
    return pa.Table.from_batches([batch]) if wanted else pa.table({})


def _from_text(text: Any, field: pa.Field) -> Any:
    """A text as JSON has the value."""
    plain = kinds.is_string(field.type) or kinds.is_temporal(field.type) or kinds.is_binary(field.type)
    if not isinstance(text, str) or plain or text == "null":
        return None if text == "null" and not kinds.is_string(field.type) else text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Misuse(
            f'{text[:60]!r} is no value of column "{field.name}"',
            hint=f"It is of type {field.type}.",
            column=field.name,
        ) from None


def why(
    view: str,
    wanted: pa.Table,
    views: Mapping[str, PreparedView],
    contents: RelationSnapshot,
    *,
    limit: int = EVENTS_SHOWN,
) -> Provenance:
    """The events behind the rows of a view that have the wanted values. ``views``: it and all below it, in order."""
    if not 0 < limit <= EVENTS_MAX:
        raise Misuse(f"limit cannot be {limit}", hint=f"From 1 to {EVENTS_MAX:,} events of each topic are shown.")
    rows = RelationRows(contents, views)
    lineage = StageLineage(rows)
    asked = Demand(tuple(wanted.column_names), wanted) if wanted.column_names else EVERYTHING  # of one row, say
    table = lineage.wanted_rows(view, asked, ROWS_MAX * 10)
    if table.num_rows == 0:
        raise _unknown(view, wanted, contents)
    if table.num_rows > ROWS_MAX:
        raise Misuse(
            f'{table.num_rows:,} rows of view "{view}" or more have these values, {ROWS_MAX:,} are explained at once',
            hint="Give more columns, or the key.",
            view=view,
        )
    try:
        steps, inputs = _walked(view, asked, views, rows, lineage, limit)
    finally:
        lineage.close()
    committed = dt.datetime.fromtimestamp(contents.manifest.committed_us / 1_000_000, tz=dt.UTC)
    found = tuple(row for batch in expand(table).to_batches() for row in to_rows(batch))
    return Provenance(view, contents.manifest.tick, committed, found, tuple(steps), tuple(inputs))


def _walked(
    view: str, asked: Demand, views: Mapping[str, PreparedView], rows: RelationRows, lineage: StageLineage, limit: int
) -> tuple[list[ProvenanceStep], list[ProvenanceInput]]:
    demands: dict[str, list[Demand]] = {view: [asked]}
    steps: list[ProvenanceStep] = []
    for name in reversed(list(views)):
        for stage in reversed(views[name].plan.stages):
            wanted = [demand for demand in demands.pop(stage.name, []) if not demand.none]
            if not wanted:
                continue
            step = lineage.step(stage, wanted)
            for relation, demand in step.demands:
                demands.setdefault(relation, []).append(demand)
            led = tuple(dict.fromkeys(relation for relation, _ in step.demands))
            told = (step.rule, step.precision, led, step.absent)
            steps.append(ProvenanceStep(name, stage.name, str(stage.kind), stage.what, *told))
    found: dict[str, ProvenanceInput] = {}
    for relation, wanted in demands.items():
        each = input_events(rows, rows.contents.inputs[relation], wanted, limit)
        found[relation] = each
    return steps, [found[relation] for relation in sorted(found)]


def _unknown(view: str, wanted: pa.Table, contents: RelationSnapshot) -> UnknownRow:
    row = next((row for batch in wanted.to_batches() for row in to_rows(batch)), {})
    tick = contents.manifest.tick
    return UnknownRow(
        f'view "{view}" has no row {json_line(row)} at tick {tick}',
        hint="Look what it has: headwater query, or an earlier tick: --at-tick.",
        view=view,
        tick=tick,
    )
