"""Decision report: the provenance of a row as a document to hand out.

What it is: ``masked`` replaces what a reader may not see; ``decision_report`` writes what is left as HTML or Markdown:
the row, the rule (the queries of its view and of those below), the steps, the records behind it, and when.
Invariants: the document needs nothing beside itself: no script, no picture, no address. What stands in it is text of
the data, never markup. What is masked, left out or not exact is said in it.
Not here: finding the events (``why.py``), which columns are personal (``views/privacy/personal_data.py``).
Read next: ``provenance.py``; ``docs/why.md``.
"""

from __future__ import annotations

import datetime as dt
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.errors import Misuse
from headwater.log.schema.column_masks import ColumnMasks, strictest
from headwater.log.schema.json_lines import json_line
from headwater.log.schema.personal_columns import Mask
from headwater.views.privacy.personal_data import PersonalData, PrivacyRights
from headwater.views.provenance.provenance import Precision, Provenance, ProvenanceInput

NOTHING = "–"
PRECISIONS = {
    Precision.EXACT: "exactly these rows",
    Precision.KEY: "all rows of the same key or partition; not each of them need matter",
    Precision.ALL: "all rows; not each of them need matter",
}
STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;margin:.5em 0}td,th{border:1px solid #bbb;padding:.2em .5em;text-align:left;"
    "vertical-align:top;overflow-wrap:anywhere}pre{background:#f4f4f4;padding:.7em;white-space:pre-wrap}"
)


@dataclass(frozen=True)
class Heading:
    """A heading; ``level`` 1 is the document's."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Code:
    """A query."""

    text: str


@dataclass(frozen=True)
class Grid:
    """A table."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Paragraph | Code | Grid
MasksOf = Callable[[str, Iterable[str]], Mapping[str, Mask]]


def masks_for(found: Provenance, data: PersonalData, rights: PrivacyRights, *, views_known: bool) -> MasksOf:
    """What masks which columns for a reader.

    Where the views are not declared, as in a process without the app's file, every column of one is as personal as all
    topics behind it.
    """
    marks = [mark for each in found.inputs for mark in data.of(each.topic).every]
    whole = strictest(mask for mark in marks if (mask := mark.mask(rights)) is not None)

    def masks(relation: str, columns: Iterable[str]) -> Mapping[str, Mask]:
        if rights.everything:
            return {}
        if relation == found.view and not views_known:
            return {} if whole is None else dict.fromkeys(columns, whole)
        return data.of(relation).masks(columns, rights)

    return masks


def masked(found: Provenance, masks_of: MasksOf, column_masks: ColumnMasks) -> Provenance:
    """The provenance as a reader may see it; a note names the columns that are masked."""
    names: dict[str, None] = {}

    def shown(relation: str, row: dict[str, Any]) -> dict[str, Any]:
        masks = masks_of(relation, row)
        names.update(dict.fromkeys(f"{relation}.{column}" for column in sorted(masks)))
        return column_masks.row(row, masks)

    rows = tuple(shown(found.view, row) for row in found.rows)
    inputs = tuple(
        replace(each, events=tuple(replace(event, row=shown(each.topic, event.row)) for event in each.events))
        for each in found.inputs
    )
    note = (f"Masked for the reader: {', '.join(names)}.",) if names else ()
    return replace(found, rows=rows, inputs=inputs, notes=(*found.notes, *note))


def decision_report(found: Provenance, *, form: str, made_at: dt.datetime) -> str:
    """The document, ``form`` ``"html"`` or ``"md"``."""
    if form not in ("html", "md"):
        raise Misuse(f"a report cannot be written as {form!r}", hint="Name a file that ends in .html or .md.")
    blocks = list(_blocks(found, made_at))
    return _as_html(found.view, blocks) if form == "html" else _as_markdown(blocks)


def _blocks(found: Provenance, made_at: dt.datetime) -> Iterator[Block]:
    yield Heading(f"Why “{found.view}” says this", 1)
    yield Paragraph(
        f"The row as it stood at {_moment(found.committed_at)} (tick {found.tick}). Written at {_moment(made_at)}."
    )
    yield Heading("What was decided")
    yield _grid([], found.rows)
    yield Heading("By which rule")
    for view, sql in found.queries:
        yield Paragraph(f"{view}:" if sql is not None else f"{view} is computed by a program of the app.")
        if sql is not None:
            yield Code(sql.strip())
    yield Heading("How the rule led from the data to the row")
    yield Grid(
        ("step", "which rows are behind it", "read from", "how exactly"),
        tuple(
            (
                step.what,
                "; ".join([step.rule, *(f"nothing of {name} meets it" for name in step.absent)]),
                ", ".join(step.reads) or NOTHING,
                PRECISIONS[step.precision],
            )
            for step in found.steps
        ),
    )
    yield Heading("From which data")
    for each in found.inputs:
        yield from _input(each)
    if found.notes or not found.exact:
        yield Heading("What this report does not say")
    if not found.exact:
        yield Paragraph("Some steps could not be narrowed down to the rows that matter: more is shown, never less.")
    yield from map(Paragraph, found.notes)


def _input(each: ProvenanceInput) -> Iterator[Block]:
    yield Heading(f"{each.topic}: {each.count:,} record{'s' * (each.count != 1)}", 3)
    if each.events:
        heads = [
            {
                "record": str(event),
                "written at": NOTHING if event.appended_at is None else _moment(event.appended_at),
                "by": event.author or NOTHING,
                **({"counts": f"{event.weight:+d}"} if event.weight != 1 else {}),
            }
            for event in each.events
        ]
        yield _grid(heads, [event.row for event in each.events])
    if each.left_out > 0:
        yield Paragraph(f"{each.left_out:,} more are not shown here.")
    if each.lost:
        yield Paragraph(f"Of {each.lost:,} more rows the record is no longer kept.")


def _grid(heads: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]]) -> Grid:
    first = list(dict.fromkeys(name for head in heads for name in head))
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = []
    for place, row in enumerate(rows):
        values = _texts(row)
        head = heads[place] if heads else {}
        lines.append((*(head.get(name, NOTHING) for name in first), *(values.get(name, NOTHING) for name in names)))
    return Grid((*first, *names), tuple(lines))


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """The values of a row as texts, as JSON has them."""
    values = json.loads(json_line(dict(row)), parse_float=str, parse_int=str)
    plain = {name: NOTHING if value is None else value for name, value in values.items()}
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in plain.items()
    }


def _moment(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# Forms


def _as_html(title: str, blocks: Iterable[Block]) -> str:
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>Why {html.escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>",
    ]
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"<h{block.level}>{html.escape(block.text)}</h{block.level}>")
        elif isinstance(block, Paragraph):
            parts.append(f"<p>{html.escape(block.text)}</p>")
        elif isinstance(block, Code):
            parts.append(f"<pre>{html.escape(block.text)}</pre>")
        else:
            lines = [("th", block.head), *(("td", row) for row in block.rows)]
            cells = ["".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in row) for tag, row in lines]
            parts.append("<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>")
    return "\n".join([*parts, "</body></html>", ""])


def _as_markdown(blocks: Iterable[Block]) -> str:
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.level} {_plain(block.text)}")
        elif isinstance(block, Paragraph):
            parts.append(_plain(block.text))
        elif isinstance(block, Code):
            runs = re.findall(r"`+", block.text)
            fence = "`" * max([3, *(len(run) + 1 for run in runs)])
            parts.append(f"{fence}sql\n{block.text}\n{fence}")
        else:
            rows = [block.head, ("---",) * len(block.head), *block.rows]
            cells = [[text if text == "---" else _plain(text) for text in row] for row in rows]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in cells))
    return "\n\n".join([*parts, ""])


def _plain(text: str) -> str:
    r"""A text whose characters mean nothing to Markdown.

    >>> print(_plain("<b>a|b</b>\n# c_d"))
    \<b\>a\|b\</b\> \# c\_d
    """
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", " ".join(text.split()))
