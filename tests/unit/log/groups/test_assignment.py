from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater.log.groups.assignment import assigned

MEMBERS = st.sets(st.sampled_from("abcdefgh"), min_size=1)


@st.composite
def situations(draw):
    """Partitions, members, and an assignment made for other members, as after joins and deaths."""
    partitions = range(draw(st.integers(1, 40)))
    current = draw(st.dictionaries(st.sampled_from(partitions), st.sampled_from("abcdefgh")))
    return partitions, draw(MEMBERS), current


@given(situations())
def test_every_partition_is_assigned_and_shares_differ_by_at_most_one(situation):
    partitions, members, current = situation

    target = assigned(partitions, members, current)

    assert set(target) == set(partitions)
    shares = Counter(target.values())
    sizes = [shares[member] for member in members]
    assert max(sizes) - min(sizes) <= 1


@given(situations())
def test_as_few_partitions_move_as_balance_allows(situation):
    partitions, members, current = situation

    target = assigned(partitions, members, current)

    # Each member can keep a share; as many as there are larger shares can keep one more.
    held = Counter(current[p] for p in current if current[p] in members)
    share, larger = divmod(len(partitions), len(members))
    can_stay = sum(min(held[m], share) for m in members) + min(larger, sum(held[m] > share for m in members))
    assert sum(current.get(p) == target[p] for p in partitions) == can_stay


@given(situations())
def test_a_second_look_changes_nothing(situation):
    partitions, members, current = situation
    target = assigned(partitions, members, current)

    again = assigned(partitions, members, target)

    assert again == target


def test_nobody_gets_anything_when_nobody_is_there():
    assert assigned(range(3), [], {0: "a"}) == {}
