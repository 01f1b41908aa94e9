"""Claims: one owner for each value; a claim belongs to the request that made it."""

import pytest

import headwater as hw
from headwater.errors import Misuse, Rejected, RequestConflict, UnknownAggregate


@pytest.fixture
def app(tmp_path):
    with hw.App("shop", home=tmp_path / "home") as app:
        yield app


@pytest.fixture
def names(app):
    return app.claims("username", partitions=2)


def test_the_second_claimant_is_told_by_whom(names):
    names.claim("ada", owner="user-7", request_id="r-1")

    with pytest.raises(Rejected) as raised:
        names.claim("ada", owner="user-9", request_id="r-2")

    assert raised.value.data == {"value": "ada", "owner": "user-7"}
    assert names.owner("ada") == "user-7"


@pytest.mark.parametrize("nobody", [None, "", 7])
def test_a_claim_for_nobody_is_refused_also_as_a_command(names, nobody):
    held = names.claim("held", owner="user-7", request_id="r-1")

    with pytest.raises(Misuse, match="owner is a text"):
        names.claim("ada", owner=nobody)
    with pytest.raises(Rejected, match="owner is a text"):
        names.repository.send("ada", "claim", owner=nobody)
    with pytest.raises(Rejected, match="to is a text"):
        names.repository.send("held", "transfer", owner="user-7", id=held.id, to=nobody)

    assert (names.owner("ada"), names.owner("held")) == (None, "user-7")


def test_a_repeated_request_gets_the_same_answer_even_when_things_have_changed(names):
    first = names.claim("ada", owner="user-7", request_id="r-1")
    with pytest.raises(Rejected):
        names.claim("ada", owner="user-9", request_id="r-2")
    names.release(first)

    again = names.claim("ada", owner="user-7", request_id="r-1")
    with pytest.raises(Rejected, match="taken by user-7"):
        names.claim("ada", owner="user-9", request_id="r-2")

    assert (again.owner, again.id, again.repeated) == ("user-7", "r-1", True)
    assert names.owner("ada") is None


def test_the_same_request_with_another_owner_is_refused(names):
    names.claim("ada", owner="user-7", request_id="r-1")

    with pytest.raises(RequestConflict):
        names.claim("ada", owner="user-9", request_id="r-1")


def test_a_claim_of_another_request_is_not_released_by_an_old_one(names):
    """A compensation that comes late: the owner has claimed the name again meanwhile."""
    old = names.claim("ada", owner="user-7", request_id="r-1")
    names.release(old)
    names.claim("ada", owner="user-7", request_id="r-2")

    with pytest.raises(Rejected, match='in request "r-2", not in "r-1"'):
        names.release(old)

    assert names.get("ada").id == "r-2"


@pytest.mark.parametrize(("owner", "claim"), [("user-9", "r-1"), ("user-7", "r-9")])
def test_only_who_names_owner_and_request_releases_or_transfers(names, owner, claim):
    names.claim("ada", owner="user-7", request_id="r-1")

    with pytest.raises(Rejected):
        names.release("ada", owner=owner, claim=claim)
    with pytest.raises(Rejected):
        names.transfer("ada", to="user-9", owner=owner, claim=claim)

    assert names.owner("ada") == "user-7"


def test_a_transfer_leaves_no_moment_at_which_the_value_is_free(names):
    claim = names.claim("ada", owner="user-7", request_id="r-1")

    given = names.transfer(claim, to="user-9", request_id="r-2")
    again = names.transfer(claim, to="user-9", request_id="r-2")

    assert (given.owner, given.id) == ("user-9", "r-2")
    assert again.repeated
    assert [event.type for event in names.repository.history("ada")] == ["claimed", "transferred"]


def test_what_is_not_taken_cannot_be_released(names):
    with pytest.raises(Rejected, match='"ada" is not taken'):
        names.release("ada", owner="user-7", claim="r-1")
    with pytest.raises(Misuse, match="names its owner and its request"):
        names.release("ada", owner="user-7")
    with pytest.raises(Misuse, match="owner is a text"):
        names.claim("ada", owner=7)


def test_claims_are_decided_again_by_verify_and_found_by_name(app, names):
    names.release(names.claim("ada", owner="user-7"))

    assert names.repository.verify() == []
    assert app.get_claims("username") is names
    assert app.aggregates["username"] is names.repository
    with pytest.raises(UnknownAggregate, match='no claims "usernam"'):
        app.get_claims("usernam")
