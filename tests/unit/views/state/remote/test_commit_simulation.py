"""The commit protocol under thousands of random interleavings, and the zombie that wakes after garbage collection."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import pytest

from headwater.views.state.remote.commit_log import CommitLog, CommitPosition, Overtaken
from tests.unit.objects.memory_store import MemoryStore
from tests.unit.views.state.remote.commit_simulation import Simulation

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
SEEDS = 2_000 * THOROUGH
STEPS, STEPS_OF_CARELESS = 250, 400


def test_nothing_is_lost_or_taken_twice_however_processes_stall_and_answers_are_lost() -> None:
    commits, collected, shut_out = 0, 0, 0

    for seed in range(SEEDS):
        simulation = Simulation(seed, processes=2 + seed % 3, trouble=[0.0, 0.03, 0.1][seed % 3])
        assert simulation.run(STEPS) == [], f"seed {seed}"
        there = [name for name in simulation.store.objects if name.startswith("commits/")]
        commits += len(simulation.store.first)
        collected += len(simulation.store.first) - len(there)
        shut_out += max((commit["epoch"] for commit in simulation.store.first.values()), default=0)

    assert commits > 5 * SEEDS
    assert collected > 2 * SEEDS
    assert shut_out > 2 * SEEDS


class Trusting(CommitLog):
    """It does not look at the commit before its own."""

    def _stands(self, known: CommitPosition) -> bool:  # noqa: ARG002
        return True


class Disorderly(CommitLog):
    """It deletes the newest commits first."""

    def _delete(self, numbers: Sequence[int]) -> None:
        for number in sorted(numbers, reverse=True):
            self.store.delete(f"commits/{number:020d}.json")


@pytest.mark.parametrize(
    ("careless", "problem"),
    [
        ({"log": Trusting}, "takes commit .* for made, and another one was first"),
        ({"log": Disorderly}, "takes commit .* for made, and another one was first"),
        ({"asks": False}, "is gone, and tick .* lists it"),
    ],
    ids=["no look at the commit before", "commits deleted in another order", "files deleted without asking"],
)
def test_the_simulation_finds_what_the_protocol_guards_against(careless: dict[str, Any], problem: str) -> None:
    seeds = range(20_000)  # it ends with the first one

    found = next(problems for seed in seeds if (problems := Simulation(seed, **careless).run(STEPS_OF_CARELESS)))

    assert re.search(problem, found[0])


def zombie(store: MemoryStore) -> tuple[CommitLog, CommitPosition]:
    """A process that has stalled before its commit, while another took over, ticked on and collected."""
    log = CommitLog(store)
    first = log.append(CommitPosition(), epoch=1, tick=0, body={})
    known = log.append(first, epoch=1, tick=1, body={})
    position = log.append(known, epoch=2, tick=1, body={})  # the other one takes over
    for tick in range(2, 10):
        position = log.append(position, epoch=2, tick=tick, body={})
        log.write_checkpoint(position, {})
    assert log.collect(8) > 4
    return log, known


def test_a_zombie_that_wakes_after_take_over_and_after_garbage_collection_cannot_commit() -> None:
    store = MemoryStore()
    log, known = zombie(store)
    assert f"commits/{known.number + 1:020d}.json" not in store.objects  # its number is free again

    with pytest.raises(Overtaken, match="commit 2 is gone: later ones were made and collected"):
        log.append(known, epoch=1, tick=2, body={"from": "the grave"})

    found = CommitLog(store).after(CommitPosition())  # and nobody reads what it left
    assert found.head(CommitPosition()).tick == 9
    assert all("from" not in commit.body for commit in found.commits)


def test_without_the_look_at_the_commit_before_the_zombie_believes_that_it_has_committed() -> None:
    store = MemoryStore()
    _, known = zombie(store)

    made = Trusting(store).append(known, epoch=1, tick=2, body={"from": "the grave"})

    assert made.number == known.number + 1


def test_a_reader_that_stalled_does_not_take_what_a_zombie_left() -> None:
    store = MemoryStore()
    log, known = zombie(store)
    with pytest.raises(Overtaken):
        log.append(known, epoch=1, tick=2, body={"from": "the grave"})

    found = CommitLog(store).after(known)  # the next number is the zombie's, and its digest fits

    assert found.checkpoint is not None
    assert found.head(known).tick == 9


def test_a_process_that_stalled_before_the_very_first_commit_cannot_make_it_again() -> None:
    store = MemoryStore()
    log, _ = zombie(store)

    with pytest.raises(Overtaken):
        log.append(CommitPosition(), epoch=1, tick=0, body={})


def test_a_lost_answer_is_recognised_by_the_nonce() -> None:
    class Lossy(MemoryStore):
        def create(self, name: str, data: bytes) -> bool:
            super().create(name, data)
            return super().create(name, data)  # the first attempt was not answered, and was repeated

    log = CommitLog(Lossy())

    first = log.append(CommitPosition(), epoch=1, tick=0, body={})

    assert log.append(first, epoch=1, tick=1, body={}).number == 2


def test_the_last_commit_is_never_collected() -> None:
    store = MemoryStore()
    log = CommitLog(store)
    position = log.append(CommitPosition(), epoch=1, tick=1, body={})
    log.write_checkpoint(position, {})

    assert log.collect(1) == 0
    log.append(position, epoch=1, tick=2, body={})
    assert log.collect(1) == 1
    assert [found.name for found in store.list("commits/")] == ["commits/00000000000000000002.json"]
