"""The soak's judgement: what grows, what only rises and falls, and a picture of it."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from bench.soak.plot import Line, Panel, drawn
from bench.soak.samples import SoakSample, growth, last_beside_second
from bench.soak_bench import judged, picture

STEADY = SoakSample(
    seconds=0.0,
    tick=0,
    ticks_a_second=20.0,
    tick_ms=40.0,
    tick_ms_p95=60.0,
    tick_processor_ms=30.0,
    python_megabytes=300.0,
    java_megabytes=700.0,
    java_beside_heap_megabytes=250.0,
    heap_megabytes=120.0,
    handles=390,
    threads=80,
    view_files=100,
    log_files=12,
    catalog_megabytes=40.0,
    serving_megabytes=1.0,
    log_megabytes=5.0,
)


def sampled(minutes: int, **changing: list[float]) -> list[SoakSample]:
    """A sample every ten seconds; ``changing`` has other values for some attributes, the last one from then on."""
    return [
        SoakSample(
            **{
                **vars(STEADY),
                "seconds": 10.0 * (number + 1),
                "tick": 200 * (number + 1),
                **{name: values[min(number, len(values) - 1)] for name, values in changing.items()},
            }
        )
        for number in range(6 * minutes)
    ]


def test_a_growth_is_told_an_hour() -> None:
    samples = sampled(60, python_megabytes=[300.0 + 0.1 * number for number in range(360)])

    found = growth(samples, "python_megabytes")

    assert found.an_hour == pytest.approx(36.0)
    assert found.percent_an_hour == pytest.approx(100 * 36.0 / found.median)


def test_what_rises_in_the_first_third_or_rises_and_falls_does_not_grow() -> None:
    warming = sampled(60, catalog_megabytes=[min(40.0, float(number)) for number in range(360)])
    sawtooth = sampled(60, java_megabytes=[600.0 + 10 * (number % 12) for number in range(360)])

    assert growth(warming, "catalog_megabytes").an_hour == 0
    assert abs(growth(sawtooth, "java_megabytes").percent_an_hour) < 1


def test_bars_are_claimed_for_long_runs_only() -> None:
    leaking = [390.0 + number for number in range(360)]
    slower = [40.0] * 300 + [80.0]

    long = {line.name: line for line in judged(sampled(60, handles=leaking, tick_ms=slower))}
    short = {line.name: line for line in judged(sampled(5, handles=leaking))}

    assert (long["handles, growth"].value, long["handles, growth"].holds) == (360.0, False)
    assert long["tick p50, last tenth beside the second"].holds is False
    assert long["memory of Python, growth"].holds is True
    assert {line.holds for line in short.values()} == {None}


def test_the_last_tenth_is_compared_with_the_second() -> None:
    samples = sampled(10, tick_ms=[500.0] * 6 + [40.0] * 48 + [60.0])

    assert last_beside_second(samples, "tick_ms") == 1.5


def test_the_picture_has_a_line_for_each_figure_within_its_panel() -> None:
    root = ElementTree.fromstring(picture(sampled(5)))
    points = [
        tuple(map(float, point.split(",")))
        for line in root.iter("{http://www.w3.org/2000/svg}polyline")
        for point in line.attrib["points"].split()
    ]
    _, _, width, height = map(float, root.attrib["viewBox"].split())

    assert len(points) == 11 * 30
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_names_in_a_picture_are_escaped() -> None:
    text = drawn("a < b & c", [0.0], [Panel("MB", [Line("<x>", [0.0])])])

    assert ElementTree.fromstring(text).find("{http://www.w3.org/2000/svg}title").text == "a < b & c"  # type: ignore[union-attr]
