"""Given, when, then: what the kit lets pass, and the sentence of everything that it does not.

What it is: scenarios of an aggregate class with mistakes that people make, each with its whole failure message.
Not here: the happy path, which the docstrings show.
Read next: ``src/headwater/testing/given_when_then.py``.
"""

from __future__ import annotations

import random
import time
import uuid
from typing import Any

import pytest

from headwater.aggregates import CommandContext, Rejected, command, event
from headwater.errors import CommandFailed, HeadwaterError, InvalidDeclaration, Misuse, RowRefused, UnknownAggregate
from headwater.testing import AggregateScenario, given


class Parcel:
    """A parcel whose commands make every mistake that the kit looks for."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.code: str | None = None
        self.by: str | None = None

    @command
    def move(self, to: str, then: str | None = None) -> None:
        if to in self.places:
            raise Rejected("it was there before", place=to)
        self.moved(to)
        if then is not None:
            self.moved(then)

    @command
    def label(self, context: CommandContext) -> None:
        self.labelled(code=f"{context.new_id()[:8]} {context.random.randint(1, 9)}", by=context.actor)

    @command
    def label_by_chance(self) -> None:
        self.labelled(code=str(random.random()), by=None)

    @command
    def label_by_time(self) -> None:
        self.labelled(code=str(time.monotonic_ns()), by=None)

    @command
    def lose(self) -> None:
        self.places = []

    @command
    def break_down(self) -> None:
        raise ZeroDivisionError("no parcel")

    @command
    def mistype(self) -> None:
        self.moved(5)  # type: ignore[arg-type]

    @event
    def moved(self, to: str) -> None:
        self.places.append(to)

    @event
    def labelled(self, code: str, by: str | None) -> None:
        self.code, self.by = code, by


def failure(call: Any) -> str:
    with pytest.raises(AssertionError) as raised:
        call()
    return str(raised.value)


def parcel() -> AggregateScenario:
    return given(Parcel).events(("moved", {"to": "Bonn"}))


def test_events_in_another_order_are_shown_as_a_difference() -> None:
    scenario = parcel().when("move", to="Köln", then="Trier")

    said = failure(lambda: scenario.then(("moved", {"to": "Trier"}), ("moved", {"to": "Köln"})))

    assert said == (
        "move(to='Köln', then='Trier') of Parcel gave other events than expected\n"
        "  + moved {'to': 'Köln'}\n"
        "    moved {'to': 'Trier'}\n"
        "  - moved {'to': 'Köln'}\n"
        "  (- expected, + given)"
    )


def test_a_rejection_where_events_are_expected_says_its_reason() -> None:
    said = failure(lambda: parcel().when("move", to="Bonn").then(("moved", {"to": "Bonn"})))

    assert said == "move(to='Bonn') of Parcel was rejected: it was there before {'place': 'Bonn'}"


def test_events_where_a_rejection_is_expected_are_listed() -> None:
    said = failure(lambda: parcel().when("move", to="Köln").then_rejected())

    assert said == "move(to='Köln') of Parcel was accepted, and should be rejected\n  + moved {'to': 'Köln'}"


def test_another_reason_and_other_data_of_a_rejection_are_shown() -> None:
    scenario = parcel().when("move", to="Bonn")

    assert failure(lambda: scenario.then_rejected("too heavy")) == (
        "move(to='Bonn') of Parcel was rejected for another reason\n  - too heavy\n  + it was there before"
    )
    assert failure(lambda: scenario.then_rejected(place="Köln")) == (
        "move(to='Bonn') of Parcel was rejected with other data\n  - {'place': 'Köln'}\n  + {'place': 'Bonn'}"
    )
    scenario.then_rejected("it was there before", place="Bonn").then_state(places=["Bonn"])


def test_a_state_that_differs_names_each_attribute() -> None:
    said = failure(lambda: parcel().when("move", to="Köln").then_state(places=["Bonn"], code=None, weight=3))

    assert said == (
        "the state after move(to='Köln') of Parcel is not as expected\n"
        "  places: expected ['Bonn'], is ['Bonn', 'Köln']\n"
        "  weight: expected 3, is '(no such attribute)'"
    )


@pytest.mark.parametrize("name", ["label_by_chance", "label_by_time"])
def test_a_command_that_asks_the_world_by_itself_fails(name: str) -> None:
    said = failure(lambda: parcel().when(name))

    assert said.startswith(f"{name}() of Parcel is not decided by its state and arguments alone")
    assert said.endswith("Take the time, new ids and chance of the context: a parameter named context.")


def test_the_context_gives_the_same_ids_for_the_same_seed() -> None:
    first, second, other = (given(Parcel, seed=seed, actor="ada").when("label").state for seed in (1, 1, 2))

    assert first.code == second.code != other.code
    assert first.by == "ada"
    assert uuid.UUID(first.code.split()[0] + "-0000-4000-8000-000000000000")


def test_a_command_that_changes_the_state_itself_fails() -> None:
    said = failure(lambda: parcel().when("lose"))

    assert said == (
        "lose() of Parcel changed the state itself, and not by its events\n"
        "  places: the command left [], its events give ['Bonn']\n"
        "  Only event methods change the state: what a command changes by itself is lost."
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: parcel().then(), Misuse, "nothing was sent yet"),
        (lambda: parcel().when("mvoe", to="x"), UnknownAggregate, 'aggregate "Parcel" has no command "mvoe"'),
        (lambda: parcel().when("move", too="x"), Misuse, 'command "move" has no argument "too"'),
        (lambda: parcel().events("lost"), InvalidDeclaration, 'there is no event type "lost"'),
        (
            lambda: parcel().when("break_down"),
            CommandFailed,
            'command "break_down" of Parcel "1" raised ZeroDivisionError: no parcel',
        ),
        (
            lambda: parcel().when("mistype"),
            RowRefused,
            'row 0 (counted from 0), column "moved.to": 5 is of type int, expected STRING',
        ),
    ],
)
def test_what_a_log_would_refuse_is_refused(call: Any, error: type[HeadwaterError], message: str) -> None:
    with pytest.raises(error) as raised:
        call()

    assert raised.value.message == message
