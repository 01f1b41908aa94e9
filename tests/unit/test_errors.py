"""Errors: each class, its code, its exit status and its row in ``docs/errors.md``.

What it is: the promises that programs and people build on when something goes wrong.
Invariants: codes are unique and never change; an exit status belongs to a branch; the docs list exactly the classes.
Not here: which call raises which error (the test of that call).
Read next: ``src/headwater/errors.py``; ``docs/errors.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import errors
from headwater.errors import HeadwaterError, OffsetOutOfRange

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
BRANCHES = HeadwaterError.__subclasses__()


def family(root: type[HeadwaterError]) -> Iterator[type[HeadwaterError]]:
    yield root
    for child in root.__subclasses__():
        yield from family(child)


def public_classes() -> list[type[HeadwaterError]]:
    return [cls for cls in family(HeadwaterError) if cls.__module__ == errors.__name__]


ALL = public_classes()
each_error = pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)


def documented_rows() -> dict[str, list[str]]:
    """Code -> the cells of its row: code, class, exit status, meaning, what to do."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {code: [code, *(cell.strip() for cell in rest.split("|"))] for code, rest in rows}


def test_there_is_one_errors_module() -> None:
    strangers = {cls.__qualname__: cls.__module__ for cls in family(HeadwaterError) if cls not in ALL}

    assert {name: module for name, module in strangers.items() if module.startswith("headwater.")} == {}


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in ALL]

    assert sorted(codes) == sorted(set(codes))


def test_each_branch_has_its_own_exit_status() -> None:
    statuses = [cls.exit_status for cls in [HeadwaterError, *BRANCHES]]

    assert len(statuses) == len(set(statuses))
    assert 0 not in statuses


@each_error
def test_a_class_has_its_own_code_and_says_what_it_means(cls: type[HeadwaterError]) -> None:
    assert "code" in cls.__dict__
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", cls.code)
    assert cls.__doc__ is not None
    assert cls.__doc__.strip()


@each_error
def test_a_class_exits_with_the_status_of_its_branch(cls: type[HeadwaterError]) -> None:
    branches = [branch for branch in BRANCHES if issubclass(cls, branch)]

    expected = branches[0].exit_status if branches else HeadwaterError.exit_status

    assert len(branches) == (0 if cls is HeadwaterError else 1)
    assert cls.exit_status == expected


@each_error
def test_a_class_is_drawn_in_the_tree_of_the_module(cls: type[HeadwaterError]) -> None:
    assert errors.__doc__ is not None
    assert re.search(rf"\b{cls.__name__}\b", errors.__doc__)


@each_error
def test_a_class_has_a_row_in_the_docs(cls: type[HeadwaterError]) -> None:
    rows = documented_rows()

    assert cls.code in rows
    code, name, status, meaning, what_to_do = rows[cls.code]
    assert (code, name, status) == (cls.code, f"`{cls.__name__}`", str(cls.exit_status))
    assert meaning
    assert what_to_do


def test_the_docs_list_no_error_that_is_gone() -> None:
    assert set(documented_rows()) - {cls.code for cls in ALL} == set()


@each_error
def test_an_error_has_one_shape_for_programs(cls: type[HeadwaterError]) -> None:
    error = cls("message", detail="detail", hint="hint", topic="orders")

    shape = json.loads(json.dumps(error.to_dict()))

    assert shape == {
        "code": cls.code,
        "message": "message",
        "detail": "detail",
        "hint": "hint",
        "data": {"topic": "orders"},
    }


def test_an_error_reads_as_message_then_detail_then_hint() -> None:
    error = OffsetOutOfRange("offset 120 is too early", detail="The start is 4000.", hint="Read from 4000.", start=4000)

    lines = str(error).splitlines()

    assert lines == ["offset 120 is too early", "  The start is 4000.", "  Hint: Read from 4000."]
    assert error.data == {"start": 4000}
