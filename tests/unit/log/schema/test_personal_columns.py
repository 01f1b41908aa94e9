"""Personal columns: what a declaration may say, what it is checked against, and that it is kept."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.errors import InvalidDeclaration
from headwater.log.home import Log

USERS = "id BIGINT, email STRING, name STRING, born DATE, address STRUCT<street: STRING, city: STRING>"
DECLARED = {
    "id": hw.Personal("user_id"),
    "email": hw.Personal("user_id", by="id", purpose="billing", mask="hash"),
    "name": hw.Personal("user_id", mask="redact"),
}


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "home") as opened:
        yield opened


def test_a_declaration_is_kept_with_the_column_of_the_id_and_read_by_another_process(log, tmp_path):
    log.topic("users", USERS, key="id", privacy=DECLARED)

    with Log(tmp_path / "home") as other:
        assert other.get_topic("users").privacy == {
            "id": hw.Personal("user_id", by="id"),
            "email": hw.Personal("user_id", by="id", purpose="billing", mask="hash"),
            "name": hw.Personal("user_id", by="id", mask="redact"),
        }
        assert other.get_topic("users").describe()["settings"]["privacy"]["name"] == {
            "subject": "user_id",
            "by": "id",
            "purpose": None,
            "mask": "redact",
        }


def test_declaring_again_changes_it_where_it_says_something_of_privacy(log):
    log.topic("users", USERS, key="id", privacy=DECLARED)

    unsaid = log.topic("users", USERS, key="id").privacy
    fewer = log.topic("users", USERS, privacy={"email": hw.Personal("user_id")}).privacy
    none = log.topic("users", USERS, privacy={}).privacy

    assert (set(unsaid), fewer, none) == ({"id", "email", "name"}, {"email": hw.Personal("user_id", by="email")}, {})


def test_a_column_that_comes_later_may_be_personal(log):
    log.topic("users", "id BIGINT", key="id")

    grown = log.topic("users", USERS, key="id", privacy=DECLARED)

    assert grown.privacy["email"].purpose == "billing"


@pytest.mark.parametrize(
    ("privacy", "sentence"),
    [
        ({"mail": hw.Personal("user_id")}, 'privacy names "mail", which is not a column'),
        ({"address.street": hw.Personal("user_id")}, 'privacy names "address.street", which is not a column'),
        ({"name": hw.Personal("user_id", by="nr")}, 'by="nr" of personal column "name" is not a column'),
        ({"name": hw.Personal("user_id", by="address")}, "which is no id"),
        ({"name": hw.Personal("user_id", by="id")}, 'column "id" holds the user_id of "name" and is not declared'),
        ({"id": hw.Personal("a"), "name": hw.Personal("b", by="id")}, 'whose id is said to be in "id", which is of a'),
        ({"id": hw.Personal("a"), "name": hw.Personal("a")}, "it is not said which column holds its a"),
        ({"born": hw.Personal("a", mask="hash")}, 'column "born" is DATE and cannot take mask="hash"'),
        ({"id": hw.Personal("a", mask="null")}, 'column "id" is BIGINT NOT NULL and cannot take mask="null"'),
        ({"id": "user_id"}, "privacy of column \"id\" cannot be 'user_id'"),
        (["id"], "privacy cannot be"),
    ],
)
def test_a_declaration_that_does_not_fit_the_columns_is_refused_and_nothing_is_stored(log, privacy, sentence):
    with pytest.raises(InvalidDeclaration) as refused:
        log.topic("users", USERS, key="id", privacy=privacy)

    assert sentence in str(refused.value)
    assert refused.value.hint
    assert log.find_topic("users") is None


def test_a_row_may_be_of_two_persons_when_each_id_names_itself(log):
    privacy = {
        "sender": hw.Personal("user_id", by="sender"),
        "receiver": hw.Personal("user_id", by="receiver"),
        "text": hw.Personal("user_id", by="sender"),
    }

    messages = log.topic("messages", "sender BIGINT, receiver BIGINT, text STRING", privacy=privacy)

    assert messages.privacy == privacy
