"""Notebooks: how an app, a view, a topic or a table is shown as the last line of a cell.

What it is: ``NotebookCard``, a title, some facts and one small table, as HTML that needs nothing else; ``card_html``,
which makes a card, also when a home cannot be read.
Invariants: everything is escaped. Showing starts no Spark, makes no home and never raises: where a home cannot be read,
the card says so in a sentence.
Not here: the dashboard (``server/dashboard``), the facts of each thing (its own ``_repr_html_``).
Read next: ``app.py``, ``views/view.py``, ``log/topic.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

ROWS_MAX = 50  # of the table; a card is to be looked at, not searched
STYLE = "text-align:left;padding:2px 12px 2px 0;vertical-align:top"


@dataclass(frozen=True)
class NotebookCard:
    """What is shown of one thing.

    >>> print(NotebookCard("Topic <t>", [("rows", 1200)], ["column", "type"], [["x", "INT"]]).html())
    <div><b>Topic &lt;t&gt;</b>
    <table>
    <tr><td style="...">rows</td><td style="...">1,200</td></tr>
    </table>
    <table>
    <tr><th style="...">column</th><th style="...">type</th></tr>
    <tr><td style="...">x</td><td style="...">INT</td></tr>
    </table>
    </div>
    """

    title: str
    facts: Sequence[tuple[str, object]]
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()

    def html(self) -> str:
        """The card as HTML."""
        parts = [f"<div><b>{escape(self.title)}</b>", *_table([_line(fact) for fact in self.facts])]
        if self.rows:
            left = len(self.rows) - ROWS_MAX
            lines = [_line(self.headers, "th"), *map(_line, self.rows[:ROWS_MAX])]
            parts += _table([*lines, _line([f"… and {left:,} more"])] if left > 0 else lines)
        return "\n".join([*parts, "</div>"])


def card_html(title: str, card: Callable[[], NotebookCard]) -> str:
    """The card as HTML; where it cannot be made, the title and the reason.

    >>> print(card_html("Topic t", lambda: NotebookCard("never", [("", 1 / 0)])))
    <div><b>Topic t</b>
    <table>
    <tr><td style="...">cannot be read</td><td style="...">division by zero</td></tr>
    </table>
    </div>
    """
    try:
        return card().html()
    except Exception as error:  # a cell must show its value, whatever has become of the home
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return NotebookCard(title, [("cannot be read", reason)]).html()


def _table(lines: list[str]) -> list[str]:
    return ["<table>", *lines, "</table>"] if lines else []


def _line(cells: Sequence[object], tag: str = "td") -> str:
    return "<tr>" + "".join(f'<{tag} style="{STYLE}">{escape(_text(cell))}</{tag}>' for cell in cells) + "</tr>"


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
