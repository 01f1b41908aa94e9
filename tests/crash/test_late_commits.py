"""An event that is committed late is not passed over.

What it is: the order of events that makes projections of other stores skip (marten#4952, #4964): one writer has got its
place and is slow to commit, another one commits after it, and a reader looks in between. There the reader goes on after
the second event and never sees the first.
Invariants: here a place is given under the partition's lock, which is held until the event is listed. So the second
writer waits, and what a reader has seen is always the beginning of what there is: for reads, subscriptions and the
ticks of views; also when the slow writer is killed, and when it is a transaction that is shown in one history and not
yet in the other.
Not here: cuts over topics (``tests/spark/test_ticks_are_cuts.py``). Read next: ``stopped_writer.py``.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import headwater as hw
from headwater.aggregates import EventStore
from headwater.log.home import Log
from tests.crash.stopped_writer import NOTED, StoppedWriter

BEFORE_DATA, BEFORE_LISTING = "append.write_data", "append.write_index"


@pytest.mark.parametrize("label", [BEFORE_DATA, BEFORE_LISTING])
@pytest.mark.parametrize("how", [signal.SIGCONT, signal.SIGKILL])
def test_a_reader_and_a_subscriber_see_every_event(quick_path: Path, label: str, how: signal.Signals) -> None:
    with Log(quick_path / "home") as log:
        store = EventStore(log, "notes", [NOTED])
        store.append([("noted", {"by": "first"})])
        subscription = store.subscribe(timeout="60 seconds")
        followed = [next(subscription)]
        slow = StoppedWriter(quick_path / "home", "slow", ["notes"], label=label)
        quick = StoppedWriter(quick_path / "home", "quick", ["notes"])
        slow.go()
        slow.wait_until_stopped()
        quick.go()

        between = store.read()
        quick_got_in = quick.line(timeout=0.3)
        slow_said, quick_said = slow.end(how), quick.line()
        after = store.read(after=between.head)
        followed += [next(subscription) for _ in after]
        quick.process.wait(60)

        assert quick_got_in is None, "the second writer has committed before the first: it would be passed over"
        assert [event.data["by"] for event in between] == ["first"]
        assert [*between, *after] == followed == EventStore(log, "notes", [NOTED]).read().events
        names = [event.data["by"] for event in followed]
        if how == signal.SIGCONT:
            assert (names, slow_said, quick_said) == (["first", "slow", "quick"], "2", "3")
        else:  # the killed one is there whole or not at all, and the other one comes after it
            assert names in (["first", "quick"], ["first", "slow", "quick"])
        assert log.check().ok


@pytest.mark.parametrize("how", [signal.SIGCONT, signal.SIGKILL])
def test_a_transaction_that_is_half_shown_is_not_overtaken(quick_path: Path, how: signal.Signals) -> None:
    with Log(quick_path / "home") as log:
        stores = [EventStore(log, name, [NOTED]) for name in ("notes", "orders")]
        for store in stores:
            store.append([("noted", {"by": "first"})])
        slow = StoppedWriter(quick_path / "home", "slow", ["notes", "orders"], label=BEFORE_LISTING, count=2)
        quick = StoppedWriter(quick_path / "home", "quick", ["orders"])
        slow.go()
        slow.wait_until_stopped()
        quick.go()

        between = [store.read() for store in stores]
        quick_got_in = quick.line(timeout=0.3)
        slow.end(how)
        quick_said = quick.line()
        quick.process.wait(60)
        after = [store.read(after=found.head) for store, found in zip(stores, between, strict=True)]

    assert quick_got_in is None
    assert [[event.data["by"] for event in found] for found in between] == [["first", "slow"], ["first"]]
    assert [[event.data["by"] for event in found] for found in after] == [[], ["slow", "quick"]]  # it was decided
    assert quick_said == "3"


@pytest.mark.usefixtures("spark")
def test_a_view_counts_every_event(quick_path: Path) -> None:
    with hw.App("notes", home=quick_path / "home") as app:
        store = app.event_store("notes", {"noted": "by STRING"})
        app.view("counted", "SELECT noted.by AS who, count(*) AS n FROM notes GROUP BY noted.by")
        store.append([("noted", {"by": "first"})])
        app.tick()
        slow = StoppedWriter(quick_path / "home", "slow", ["notes"], label=BEFORE_LISTING)
        quick = StoppedWriter(quick_path / "home", "quick", ["notes"])
        slow.go()
        slow.wait_until_stopped()
        quick.go()

        app.tick()
        between = {row["who"]: row["n"] for row in app.get_view("counted").rows()}
        slow.end(signal.SIGCONT)
        quick.line()
        quick.process.wait(60)
        app.tick()
        after = {row["who"]: row["n"] for row in app.get_view("counted").rows()}

    assert between == {"first": 1}
    assert after == {"first": 1, "slow": 1, "quick": 1}
