"""Commands, their events and their answers.

What it is: what ``send`` does with a command that is accepted, rejected, repeated, wrong or outrun.
Invariants: the oracle is the list of events that were expected, or a plain sum over them.
Not here: kills (``tests/crash/test_aggregates_survive_kill.py``). Read next: ``bank.py``.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import headwater as hw
from headwater import errors
from headwater.aggregates import Rejected, command, event
from tests.unit.aggregates.bank import Account, repository


def test_a_command_becomes_events_that_another_process_reads(tmp_path: Path) -> None:
    accounts = repository(tmp_path)

    outcome = accounts.send("7", "move", out=0, back=9)

    assert [(each.type, each.data, each.version) for each in outcome.events] == [
        ("withdrawn", {"cents": 0}, 1),
        ("deposited", {"cents": 9, "note": None}, 2),
    ]
    assert outcome.version == 2
    assert repository(tmp_path).get("7").cents == 9
    assert repository(tmp_path).history("7") == list(outcome.events)


def test_the_token_covers_the_events(tmp_path: Path) -> None:
    accounts = repository(tmp_path)

    outcome = accounts.send("7", "deposit", cents=5)

    partition = accounts.store.partition_of("7")
    assert outcome.token.frontier == {"account": {partition: 1}}


def test_a_rejected_command_leaves_its_record_and_nothing_else(tmp_path: Path) -> None:
    accounts = repository(tmp_path)
    accounts.send("7", "deposit", cents=5)

    with pytest.raises(Rejected, match="no funds") as refused:
        accounts.send("7", "withdraw", cents=9)

    assert refused.value.data == {"missing": 4}
    assert (accounts.version("7"), accounts.get("7").cents) == (1, 5)
    record = accounts.history("7")[-1]
    assert (record.type, record.version, record.data["reason"]) == ("rejected", None, "no funds")
    assert record.extra is not None
    assert record.extra["command"]["arguments"] == '{"cents":9}'
    assert accounts.send("7", "withdraw", cents=5).version == 2


def test_a_command_that_changes_the_state_by_itself_is_not_believed(tmp_path: Path) -> None:
    accounts = repository(tmp_path)
    accounts.send("7", "deposit", cents=5)

    with pytest.raises(Rejected, match="found out"):
        accounts.send("7", "cheat")

    assert accounts.get("7").cents == 5


def test_a_state_that_was_given_out_is_a_copy(tmp_path: Path) -> None:
    accounts = repository(tmp_path)
    accounts.send("7", "deposit", cents=5, note="hello")

    accounts.get("7").notes.append("changed")

    assert accounts.get("7").notes == ["hello"]


def test_a_repeated_request_gets_the_first_answer(tmp_path: Path) -> None:
    accounts = repository(tmp_path)
    first = accounts.send("7", "deposit", cents=5, request_id="r-1")
    accounts.send("7", "deposit", cents=1)

    for again in (accounts, repository(tmp_path)):
        repeated = again.send("7", "deposit", cents=5, request_id="r-1")

        assert repeated.repeated
        assert (repeated.version, repeated.token, list(repeated.events)) == (1, first.token, list(first.events))
    assert accounts.get("7").cents == 6


def test_a_repeated_request_gets_the_first_answer_though_it_is_decided_over_an_old_state(tmp_path: Path) -> None:
    mine, others = repository(tmp_path), repository(tmp_path)
    mine.send("7", "deposit", cents=1)
    others.send("7", "deposit", cents=5)
    first = others.send("7", "withdraw", cents=5, request_id="r-1")

    repeated = mine.send("7", "withdraw", cents=5, request_id="r-1")  # mine has 1 in memory: it would be rejected

    assert (repeated.repeated, list(repeated.events)) == (True, list(first.events))


def test_a_repeated_request_that_was_rejected_is_rejected_again_though_it_would_pass_now(tmp_path: Path) -> None:
    accounts = repository(tmp_path)
    with pytest.raises(Rejected):
        accounts.send("7", "withdraw", cents=5, request_id="r-1")
    accounts.send("7", "deposit", cents=10)

    with pytest.raises(Rejected, match="no funds") as refused:
        repository(tmp_path).send("7", "withdraw", cents=5, request_id="r-1")

    assert refused.value.data == {"missing": 5}
    assert accounts.get("7").cents == 10


def test_a_request_that_did_nothing_is_remembered_too(tmp_path: Path) -> None:
    accounts = repository(tmp_path)

    assert not accounts.send("7", "nothing", request_id="r-1").repeated
    assert accounts.send("7", "nothing", request_id="r-1").repeated
    assert (accounts.version("7"), accounts.history("7")) == (0, [])


def test_a_request_id_belongs_to_one_aggregate(tmp_path: Path) -> None:
    accounts = repository(tmp_path, partitions=1)

    accounts.send("7", "deposit", cents=5, request_id="r-1")
    accounts.send("8", "deposit", cents=5, request_id="r-1")

    assert (accounts.get("7").cents, accounts.get("8").cents) == (5, 5)


def test_a_request_id_with_another_command_is_a_conflict(tmp_path: Path) -> None:
    accounts = repository(tmp_path)
    accounts.send("7", "deposit", cents=5, request_id="r-1")

    with pytest.raises(errors.RequestConflict) as refused:
        accounts.send("7", "deposit", cents=6, request_id="r-1")

    assert str(refused.value) == (
        'request "r-1" of account "7" was sent before, with another command\n'
        '  It was deposit {"cents":5}.\n'
        "  Hint: Give each command an id of its own."
    )


def test_a_command_that_raises_writes_nothing_and_its_request_may_come_again(tmp_path: Path) -> None:
    accounts = repository(tmp_path)

    with pytest.raises(errors.CommandFailed) as failed:
        accounts.send("7", "break_down", request_id="r-1")

    assert str(failed.value) == (
        'command "break_down" of account "7" raised ZeroDivisionError: the till is empty\n'
        "  Nothing was written.\n"
        "  Hint: A rule that refuses a command raises Rejected."
    )
    assert accounts.history("7") == []
    assert accounts.send("7", "deposit", cents=1, request_id="r-1").version == 1


def test_a_command_that_raises_over_an_old_state_is_decided_again(tmp_path: Path) -> None:
    class Stock:
        def __init__(self) -> None:
            self.items: dict[str, int] = {}

        @command
        def put(self, item: str) -> None:
            self.was_put(item)

        @command
        def take(self, item: str) -> None:
            if self.items[item]:  # a KeyError for what is not there
                self.taken(item)

        @event
        def was_put(self, item: str) -> None:
            self.items[item] = 1

        @event
        def taken(self, item: str) -> None:
            del self.items[item]

    mine, others = (hw.App("shop", home=str(tmp_path)).aggregate("stock", Stock) for _ in range(2))
    mine.send("1", "put", item="cup")
    others.send("1", "put", item="pot")

    assert mine.send("1", "take", item="pot").version == 3
    with pytest.raises(errors.CommandFailed, match="KeyError"):
        mine.send("1", "take", item="pot")


def test_a_version_that_has_passed_is_a_conflict(tmp_path: Path) -> None:
    accounts, others = repository(tmp_path), repository(tmp_path)
    accounts.send("7", "deposit", cents=5)
    others.send("7", "deposit", cents=5)

    with pytest.raises(errors.VersionConflict, match="has version 2; expected was 1"):
        accounts.send("7", "withdraw", cents=5, expected=1)

    assert accounts.send("7", "withdraw", cents=10, expected=2).version == 3


def test_a_command_over_an_old_state_is_decided_again(tmp_path: Path) -> None:
    mine, others = repository(tmp_path), repository(tmp_path)
    mine.send("7", "deposit", cents=5)
    others.send("7", "withdraw", cents=5)

    with pytest.raises(Rejected, match="no funds"):  # mine still has 5 in memory
        mine.send("7", "withdraw", cents=5)

    others.send("7", "deposit", cents=8)
    assert mine.send("7", "withdraw", cents=8).version == 4  # and here 0


@pytest.mark.parametrize(
    ("command", "arguments", "sentence"),
    [
        ("despoit", {}, 'aggregate "account" has no command "despoit"\n  Hint: Did you mean "deposit"?'),
        ("deposit", {"cent": 5}, 'command "deposit" has no argument "cent"\n  Hint: Did you mean "cents"?'),
        ("deposit", {}, 'command "deposit" needs the argument "cents"'),
        ("deposit", {"cents": object()}, "is of type object, which cannot be recorded"),
        ("deposit", {"cents": 1 << 70}, "is outside of BIGINT"),
    ],
)
def test_a_wrong_call_is_told(tmp_path: Path, command: str, arguments: dict[str, object], sentence: str) -> None:
    accounts = repository(tmp_path)

    with pytest.raises(errors.Misuse) as refused:
        accounts.send("7", command, **arguments)

    assert sentence in str(refused.value)
    assert accounts.history("7") == []


def test_threads_of_one_process_lose_no_command(tmp_path: Path) -> None:
    accounts = repository(tmp_path)

    def pay(thread: int) -> None:
        for number in range(20):
            accounts.send("hot", "deposit", cents=1, request_id=f"{thread}-{number}")
            accounts.send(f"cold-{thread}", "deposit", cents=1)

    threads = [threading.Thread(target=pay, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    history = accounts.history("hot")
    assert [each.version for each in history] == list(range(1, 81))
    assert accounts.get("hot").cents == 80
    assert sorted(accounts.ids()) == ["cold-0", "cold-1", "cold-2", "cold-3", "hot"]


def test_metadata_goes_with_the_events(tmp_path: Path) -> None:
    accounts = repository(tmp_path)

    accounts.send("7", "label", metadata=hw.Metadata(actor="anna"))

    [event] = repository(tmp_path).history("7")
    assert event.metadata == hw.Metadata(actor="anna")
    assert event.data["note"].endswith(" anna")


def test_an_earlier_version_can_be_looked_at(tmp_path: Path) -> None:
    accounts = repository(tmp_path)
    for cents in (5, 6, 7):
        accounts.send("7", "deposit", cents=cents)

    assert [accounts.get("7", version=version).cents for version in (0, 1, 2, 3)] == [0, 5, 11, 18]
    with pytest.raises(errors.Misuse, match="has 3 events, not 4"):
        accounts.get("7", version=4)


class Renamed:
    """An account whose code has moved on without its oldest event."""

    cents = 0

    @event
    def deposit_made(self, cents: int) -> None:
        self.cents += cents


def test_an_event_of_an_unknown_type_is_told_with_its_place(tmp_path: Path) -> None:
    repository(tmp_path).send("7", "deposit", cents=5)

    with pytest.raises(errors.ReplayFailed) as failed:
        repository(tmp_path, Renamed).get("7")

    partition = repository(tmp_path).store.partition_of("7")
    assert str(failed.value) == (
        'event 1 of account "7" is of type "deposited", which Renamed does not know\n'
        f"  It is at partition {partition}, offset 0.\n"
        '  Hint: Was it renamed to "deposit_made"? Add an event method "deposited"; it may do nothing.'
    )


class Fragile(Account):
    """An account whose event method fails over some events."""

    broken = True

    @event
    def deposited(self, cents: int, note: str | None = None) -> None:
        self.cents += cents
        if note == "poison" and Fragile.broken:
            raise ValueError("cannot digest it")


def test_a_poison_event_is_told_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = repository(tmp_path)
    accounts.send("7", "deposit", cents=5, note="poison")
    accounts.send("8", "deposit", cents=5)
    fragile = repository(tmp_path, Fragile)

    for _ in range(2):  # the half-applied state of the first try is not kept
        with pytest.raises(errors.ReplayFailed) as failed:
            fragile.send("7", "withdraw", cents=5)

        assert 'event method "deposited" failed over event 1 of account "7": ValueError: cannot' in str(failed.value)
    assert fragile.get("8").cents == 5

    monkeypatch.setattr(Fragile, "broken", False)
    assert fragile.get("7").cents == 5


class Euros:
    """An account whose deposits are in a currency since version 2, and have a teller since version 3."""

    def __init__(self) -> None:
        self.booked: list[tuple[int, str, str]] = []

    @command
    def deposit(self, cents: int, currency: str) -> None:
        self.deposited(cents, currency)

    @event(
        version=3,
        upcasters={1: lambda data: {**data, "currency": "DEM"}, 2: lambda data: {**data, "cents": data["cents"] * 2}},
    )
    def deposited(self, cents: int, currency: str, teller: str = "a machine") -> None:
        self.booked.append((cents, currency, teller))


def test_events_of_older_versions_are_brought_to_the_newest_one(tmp_path: Path) -> None:
    repository(tmp_path).send("7", "deposit", cents=5)
    newer = repository(tmp_path, Euros)

    newer.send("7", "deposit", cents=7, currency="EUR")

    assert newer.get("7").booked == [(10, "DEM", "a machine"), (7, "EUR", "a machine")]
    assert [(each.type_version, each.data["cents"]) for each in newer.history("7")] == [(3, 10), (3, 7)]
    assert [row["type_version"] for row in newer.store.topic.rows()] == [1, 3]  # what is stored stays
    with pytest.raises(errors.ReplayFailed, match="has version 3 of event type"):
        repository(tmp_path).get("7")


class Wrong(Euros):
    """An account with an upcaster that fails."""

    @event(version=2, upcasters={1: lambda data: {"cents": data["amount"]}})
    def deposited(self, cents: int) -> None:
        self.booked.append((cents, "", ""))


def test_a_wrong_upcaster_is_told(tmp_path: Path) -> None:
    repository(tmp_path).send("7", "deposit", cents=5)

    with pytest.raises(errors.ReplayFailed) as failed:
        repository(tmp_path, Wrong).get("7")

    assert str(failed.value) == (
        'the upcaster of event type "deposited" from version 1 failed over event 1 of account "7": '
        "KeyError: 'amount'\n"
        "  Hint: The stored event is as it was. Correct the upcaster."
    )


def test_a_history_refuses_what_would_take_events_away(tmp_path: Path) -> None:
    accounts = repository(tmp_path)
    log = accounts.store.topic.log

    with pytest.raises(errors.InvalidDeclaration, match="a history of events has no retention"):
        log.topic("account", accounts.store.rows.schema, retention="7 days")
    with pytest.raises(errors.Misuse, match="is a history of events, and rows are not appended to it directly"):
        accounts.store.topic.append([{"stream": "7", "type": "deposited"}])
    with pytest.raises(errors.DeclarationConflict, match="cannot become"):
        log.topic("account", accounts.store.rows.schema, events=False)
