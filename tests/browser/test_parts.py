"""Parts of the dashboard that only compute: where nodes stand, and a view's copy; asked in the browser, as modules."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page

from tests.browser.conftest import Look

EXAMPLES = 25 * int(os.environ.get("HEADWATER_THOROUGH", "1"))
ARRANGE = """async ([nodes, edges]) => {
  const { arranged, spread } = await import("/static/parts/layers.js");
  const found = arranged(nodes, edges);
  const height = spread(found.layers, { node: 60, bend: 10, gap: 10 });
  return {
    height,
    places: nodes.map((node) => [found.cellOf.get(node.id).layer, found.cellOf.get(node.id).y]),
    kept: [...found.bends.keys()].map((edge) => [edge.from, edge.to]),
    layers: found.layers.map((layer) => layer.map((cell) => [cell.y, cell.bend ? 10 : 60])),
  };
}"""
COPY = """async (messages) => {
  const { Copy } = await import("/static/parts/copy.js");
  const copy = new Copy();
  return messages.map((message) => {
    copy.take(message);
    return copy.ordered("n", false).map(([, row]) => row);
  });
}"""


TICKS = """async ([from, to, most]) => {
  const { clockTicks } = await import("/static/parts/plots.js");
  return clockTicks(from, to, most).map(([at]) => at);
}"""


def test_the_times_of_an_axis_are_round_even_and_few(look: Look) -> None:
    page = look("/alerts")

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(st.integers(10**12, 2 * 10**12), st.integers(1000, 10**9), st.integers(1, 20))
    def holds(begin: int, length: int, most: int) -> None:
        found = page.evaluate(TICKS, [begin, begin + length, most])
        assert len(found) <= most + 1
        assert all(begin <= at <= begin + length for at in found)
        steps = {after - before for before, after in pairwise(found)}
        assert len(steps) <= 1
        assert all(at % 1000 == 0 for at in found)

    holds()


def test_nodes_stand_in_layers_without_touching(look: Look) -> None:
    page = look("/alerts")

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(st.integers(1, 9), st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20))
    def holds(count: int, pairs: set[tuple[int, int]]) -> None:
        nodes = [{"id": str(number)} for number in range(count)]
        edges = [{"from": str(one), "to": str(other)} for one, other in sorted(pairs)]
        found = page.evaluate(ARRANGE, [nodes, edges])
        layer = {str(number): place[0] for number, place in enumerate(found["places"])}
        assert all(layer[one] < layer[other] for one, other in found["kept"])
        for cells in found["layers"]:
            for (above, size), (below, other) in pairwise(cells):
                assert below - above >= (size + other) / 2 + 10 - 1e-6
        cells = [cell for layer in found["layers"] for cell in layer]
        assert min(y - size / 2 for y, size in cells) == pytest.approx(0)
        assert max(y + size / 2 for y, size in cells) == pytest.approx(found["height"])
        # Nothing is far away from all others, also when no edge ties it to them.
        edges_of = sorted([(y - size / 2, y + size / 2) for y, size in cells])
        assert all(
            top <= max(bottom for _, bottom in edges_of[:place]) + 10 + 1e-6
            for place, (top, _) in enumerate(edges_of)
            if place
        )

    holds()


def test_a_copy_is_the_view_at_every_tick(look: Look) -> None:
    page = look("/alerts")

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(st.booleans(), st.lists(st.dictionaries(st.integers(0, 3), st.integers(0, 3), max_size=3), max_size=6))
    def holds(keyed: bool, ticks: list[dict[int, int]]) -> None:
        messages, expected = _told(keyed, ticks)
        assert page.evaluate(COPY, messages) == expected

    holds()


def _told(keyed: bool, ticks: list[dict[int, int]]) -> tuple[list[dict[str, Any]], list[list[dict[str, int]]]]:
    """Messages of a view (with a key: one row for each n; without: rows that may be there twice), and its rows."""
    columns = [{"name": "n", "type": "int64"}, {"name": "value", "type": "int64"}]
    messages: list[dict[str, Any]] = [
        {"type": "snapshot", "columns": columns, "key": ["n"] if keyed else [], "rows": [], "more": False, "tick": 0}
    ]
    rows: list[tuple[int, int]] = []
    expected = [[]]
    for number, wanted in enumerate(ticks, start=1):
        changes: list[dict[str, Any]] = []

        def said(kind: str, row: tuple[int, int], changes: list[dict[str, Any]] = changes) -> None:
            changes.append({"n": row[0], "value": row[1], "_change_type": kind, "_commit_timestamp": "…"})

        for n, value in wanted.items():
            old = [row for row in rows if row[0] == n]
            if keyed and old:
                rows.remove(old[0])
                said("update_preimage", old[0])
                said("update_postimage", (n, value))
            elif old and value == 0:
                rows.remove(old[0])
                said("delete", old[0])
                continue
            else:
                said("insert", (n, value))
            rows.append((n, value))
        half = len(changes) // 2
        messages.append({"type": "changes", "changes": changes[:half], "more": True, "tick": number})
        expected.append(expected[-1])
        messages.append({"type": "changes", "changes": changes[half:], "more": False, "tick": number})
        expected.append([{"n": n, "value": value} for n, value in sorted(rows)])
    return messages, expected  # type: ignore[return-value]


def test_figures_are_short(look: Look) -> None:
    page: Page = look("/alerts")

    said = page.evaluate("""async () => {
      const { bytes, brief, count, rate, seconds } = await import("/static/figures.js");
      const times = [0.0123, 3.21, 130].map(seconds);
      return [count(1234567), brief(1234567), rate(2.54), rate(0), ...times, bytes(1536), count(null)];
    }""")

    assert said == ["1,234,567", "1.2M", "2.5/s", "0/s", "12 ms", "3.2 s", "2 min 10 s", "1.5 KiB", "–"]


PLOT = """async ([values, width, whole]) => {
  const { plot } = await import("/static/parts/plots.js");
  const at = (place) => new Date(place * 1000).toISOString().slice(11, 19);
  const points = values.map((value, place) => [at(place * 7), value, place + (place % 3) / 3]);
  const format = (value) => String(whole ? Math.round(value) : value);
  const drawn = plot(points, { words: "a plot", width, whole, format });
  const holder = document.createElement("div");
  document.body.append(holder);
  holder.append(drawn);
  drawn.setAttribute("width", width);
  const texts = [...drawn.querySelectorAll("text.tick")].map((text) => {
    const box = text.getBBox();
    return [text.textContent, box.x, box.x + box.width, text.getAttribute("text-anchor") === "end" && box.x < 60];
  });
  holder.remove();
  return texts;
}"""


@pytest.mark.parametrize("whole", [True, False])
def test_no_label_of_a_plot_covers_another_or_repeats_it(look: Look, whole: bool) -> None:
    page = look("/alerts")

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(st.lists(st.integers(0, 40), min_size=2, max_size=40), st.sampled_from([280, 320, 500, 1200]))
    def held(values: list[int], width: int) -> None:
        texts = page.evaluate(PLOT, [values, width, whole])
        upwards = [text for text, _, _, left in texts if left]
        along = [(first, last) for _, first, last, left in texts if not left]
        assert len(set(upwards)) == len(upwards) >= 2
        assert along
        assert all(last <= first for (_, last), (first, _) in pairwise(sorted(along)))

    held()
