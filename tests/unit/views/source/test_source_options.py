"""What a user may say to the source, and what is answered when it makes no sense."""

from __future__ import annotations

import datetime as dt

import pytest

from headwater.errors import InvalidDeclaration
from headwater.views.source.source_options import SourceOptions

ENOUGH = {"home": "data", "topic": "orders"}


def test_names_are_case_insensitive_as_everywhere_in_spark():
    options = SourceOptions.parse(ENOUGH | {"STARTINGOFFSETS": "LATEST", "includemetadata": "True"})

    assert (options.starting, options.include_metadata) == ("latest", True)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T12:00:00Z", dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        ("2026-01-31 13:00:00+01:00", dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        ("2026-01-31", dt.datetime(2026, 1, 31, tzinfo=dt.UTC)),
        ("1500", dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC)),
    ],
)
def test_a_starting_time_is_iso_text_or_milliseconds(text: str, moment: dt.datetime):
    assert SourceOptions.parse(ENOUGH | {"startingTimestamp": text}).starting == moment


def test_columns_are_separated_by_commas():
    assert SourceOptions.parse(ENOUGH | {"columns": "a, `b c` ,_offset"}).columns == ("a", "b c", "_offset")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "orders"}, 'option "home" is missing'),
        ({"home": "data", "topic": " "}, 'option "topic" is missing'),
        (ENOUGH | {"maxRowsPerTriger": "5"}, 'Hint: Did you mean "maxRowsPerTrigger"?'),
        (ENOUGH | {"path": "data"}, "load('data') was given a path"),
        (ENOUGH | {"startingOffsets": "12"}, "option \"startingOffsets\" cannot be '12'"),
        (ENOUGH | {"startingOffsets": '{"0": -1}'}, "The offset of partition 0 is -1."),
        (ENOUGH | {"endingOffsets": '{"zero": 1}'}, 'option "endingOffsets" cannot be'),
        (ENOUGH | {"startingTimestamp": "noon"}, "option \"startingTimestamp\" cannot be 'noon'"),
        (ENOUGH | {"startingTimestamp": "1", "startingOffsets": "latest"}, "exclude each other"),
        (ENOUGH | {"maxRowsPerTrigger": "0"}, "Use a whole number above zero."),
        (ENOUGH | {"columns": "a,a"}, "Name each column once."),
        (ENOUGH | {"columns": ", "}, "Name columns"),
        (ENOUGH | {"failOnDataLoss": "no"}, 'Use "true" or "false".'),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, str], message: str):
    with pytest.raises(InvalidDeclaration) as caught:
        SourceOptions.parse(given)

    assert message in str(caught.value)


def test_an_option_of_the_other_kind_of_read_is_refused():
    with pytest.raises(InvalidDeclaration, match=r"makes no sense for spark\.readStream"):
        SourceOptions.parse(ENOUGH | {"endingOffsets": "latest"}, streaming=True)
    with pytest.raises(InvalidDeclaration, match=r"makes no sense for spark\.read"):
        SourceOptions.parse(ENOUGH | {"maxRowsPerTrigger": "5"}, streaming=False)
