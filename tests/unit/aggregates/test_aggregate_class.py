"""Classes that cannot be aggregates, and those that can.

What it is: the declaration of aggregates, commands and events.
Invariants: what makes no sense is refused before anything is written, with the name and what to do.
Not here: commands (``test_aggregate_repository.py``). Read next: ``aggregates/aggregate_class.py``.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import errors
from headwater.aggregates import command, event
from headwater.aggregates.aggregate_class import AggregateClass
from tests.unit.aggregates.bank import Account, repository


@dataclasses.dataclass
class Address:
    """A part of an event's data."""

    street: str
    number: int | None


class Parcel:
    """An aggregate with every type of data."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    @event
    def sent(
        self,
        on: dt.date,
        at: dt.datetime,
        price: decimal.Decimal,
        weight: float,
        label: bytes,
        fragile: bool,
        to: Address,
        stops: list[str],
        fees: dict[str, int],
    ) -> None:
        self.seen.append(locals())


def test_parameters_of_an_event_method_are_its_columns() -> None:
    columns = AggregateClass("parcel", Parcel).events["sent"].type.fields

    assert {each.name: str(each.type) for each in columns} == {
        "on": "date32[day]",
        "at": "timestamp[us, tz=UTC]",
        "price": "decimal128(38, 18)",
        "weight": "double",
        "label": "binary",
        "fragile": "bool",
        "to": "struct<street: string, number: int64>",
        "stops": "list<item: string>",
        "fees": "map<string, int64>",
    }


class NoEvents:
    """A plain class."""


class Needy:
    """A class that needs an argument."""

    def __init__(self, name: str) -> None: ...

    @event
    def named(self, name: str) -> None: ...


class Unsettled:
    """A tentative event that cannot be taken back."""

    @event(tentative="1 hour")
    def held(self) -> None: ...


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (NoEvents, 'class NoEvents of aggregate "x" has no event methods'),
        (Needy, 'Needy() of aggregate "x" failed'),
        (Unsettled, 'event "held" of Unsettled is tentative, and nothing says how it is taken back'),
        (Account(), 'aggregate "x" is declared by Account, not by a class'),
    ],
)
def test_a_class_that_cannot_be_an_aggregate_is_told(declared: Any, sentence: str) -> None:
    with pytest.raises(errors.InvalidDeclaration) as refused:
        AggregateClass("x", declared)

    assert sentence in str(refused.value)


def test_an_event_method_says_the_types_of_its_parameters() -> None:
    with pytest.raises(errors.InvalidDeclaration, match='parameter "cents" of event method "paid" has no type'):

        class _Untyped:
            @event
            def paid(self, cents) -> None: ...  # type: ignore[no-untyped-def]


def test_columns_may_be_given_as_ddl() -> None:
    class Sensor:
        @event("celsius FLOAT, places ARRAY<STRING>")
        def measured(self, celsius, places) -> None: ...  # type: ignore[no-untyped-def]

    assert AggregateClass("sensor", Sensor).events["measured"].type.fields == pa.struct(
        [("celsius", pa.float32()), ("places", pa.list_(pa.field("element", pa.string())))]
    )


def test_the_names_of_send_are_no_parameters_of_a_command() -> None:
    with pytest.raises(errors.InvalidDeclaration, match='command "pay" cannot have a parameter "request_id"'):

        class _Taken:
            @command
            def pay(self, request_id: str) -> None: ...


def test_an_event_type_cannot_have_the_name_of_a_column(tmp_path: Path) -> None:
    class Versioned:
        @event
        def version(self, number: int) -> None: ...

    with pytest.raises(errors.InvalidDeclaration, match='an event type cannot be named "version"'):
        repository(tmp_path, Versioned)


def test_an_event_method_that_calls_another_one_is_told(tmp_path: Path) -> None:
    class Nested:
        @command
        def open(self) -> None:
            self.opened()

        @event
        def opened(self) -> None:
            self.noted()

        @event
        def noted(self) -> None: ...

    with pytest.raises(errors.Misuse, match='event method "noted" was called by another event method'):
        repository(tmp_path, Nested).send("1", "open")


def test_outside_of_commands_it_is_a_plain_class() -> None:
    account = Account()

    account.deposit(5)
    account.withdrawn(2)

    assert account.cents == 3


def test_inherited_commands_and_events_count() -> None:
    class Savings(Account):
        @event
        def interest_paid(self, cents: int) -> None:
            self.cents += cents

    declared = AggregateClass("savings", Savings)

    assert {"deposited", "interest_paid"} <= set(declared.events)
    assert "deposit" in declared.commands


def test_another_body_is_another_fingerprint_and_another_name_is_not() -> None:
    def made(factor: int, rename: str) -> str:
        class Counter:
            n = 0

            @event
            def counted(self, by: int) -> None:
                self.n += by * FACTOR

        Counter.FACTOR = factor  # type: ignore[attr-defined]
        Counter.__name__ = rename
        return AggregateClass("counter", Counter).fingerprint

    assert made(1, "Counter") == made(1, "Tally")
    assert made(1, "Counter") != made(2, "Counter")


FACTOR = 1
