"""A token: what it covers, how tokens join, and its text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidDeclaration
from headwater.log.token import Token

NAMES = st.sampled_from(["orders", "users", "a.b-c_d"])
OFFSETS = st.dictionaries(st.integers(0, 5), st.integers(1, 100), min_size=1)
TOKENS = st.dictionaries(NAMES, OFFSETS).map(Token)


@given(TOKENS)
def test_a_token_comes_back_from_its_text(token):
    assert Token.parse(str(token)) == token


@given(TOKENS, TOKENS)
def test_two_tokens_joined_cover_both_and_no_more(one, other):
    both = one | other

    assert both.covers(one)
    assert both.covers(other)
    assert both == other | one
    assert both | one == both
    for topic, offsets in both.frontier.items():
        for partition, offset in offsets.items():
            known = [t.frontier.get(topic, {}).get(partition, 0) for t in (one, other)]
            assert offset == max(known)


def test_a_token_does_not_cover_what_is_further_on():
    token = Token({"orders": {0: 5}})

    assert not token.covers(Token({"orders": {0: 6}}))
    assert not token.covers(Token({"orders": {1: 1}}))
    assert not token.covers(Token({"users": {0: 1}}))
    assert token.covers(Token({}))


@pytest.mark.parametrize("text", ["orders:0", "orders:x=1", "orders:0=y", "orders:0=1=2"])
def test_a_text_that_is_no_token_is_refused(text):
    with pytest.raises(InvalidDeclaration, match="is not a token") as refused:
        Token.parse(text)

    assert "orders:0=120" in refused.value.hint


def test_reading_from_a_token_goes_on_after_it(log):
    topic = log.topic("t", "x INT")
    token = topic.append([{"x": 1}, {"x": 2}])
    topic.append([{"x": 3}])

    assert [row["x"] for row in topic.rows(token)] == [3]
    assert [row["x"] for row in topic.rows(stop=token)] == [1, 2]
