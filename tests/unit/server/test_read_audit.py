"""What a key is shown of personal columns is on record before it is answered; and nothing of the person is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import headwater as hw
from headwater.errors import ClosedError
from headwater.log.maintenance.audit_trail import AUDIT_TOPIC, begin_trail
from headwater.server.application import create
from headwater.server.http.keys import Holder, Keys
from headwater.server.http.masked_answers import MaskedAnswers
from headwater.server.server_settings import ServerSettings
from headwater.server.server_state import ServerState
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.erasure.person_erasure import PersonErasure
from headwater.views.privacy.hidden_columns import HiddenColumns

MARK = "zq-marker-zq"
SEES = Holder("support", frozenset({"query", "personal"}))
BILLS = Holder("invoices", frozenset({"query"}), purposes=("billing",))
BLIND = Holder("charts", frozenset({"query"}))


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    app = hw.App("people", home=tmp_path / "home")
    users = app.table(
        "users",
        "id BIGINT, mail STRING, name STRING, country STRING",
        key="id",
        privacy={
            "id": hw.Personal("user_id", mask="hash"),
            "mail": hw.Personal("user_id", by="id", purpose="billing", mask="hash"),
            "name": hw.Personal("user_id", by="id", mask="redact"),
        },
    )
    users.upsert([{"id": 7, "mail": MARK, "name": MARK, "country": "DE"}])
    app.view("mails", "SELECT country, lower(mail) AS address FROM users")
    app.view("countries", "SELECT country FROM users")
    yield app
    app.close()


def told(app: hw.App) -> list[tuple[Any, ...]]:
    topic = app.log.local.find_topic(AUDIT_TOPIC)
    rows = [] if topic is None else topic.rows()
    return [(row["action"], row["who"], row["relation"], row["columns"], row["rows"], row["detail"]) for row in rows]


def test_what_is_shown_is_told_and_what_is_masked_is_not(app: hw.App) -> None:
    masked = MaskedAnswers(app, audited=True)
    rows = pa.table({"country": ["DE", "FR"], "address": [MARK, "b"]})

    masked.table(BLIND, "mails", rows, "rows")
    masked.table(SEES, "countries", rows.select(["country"]), "rows")
    masked.table(SEES, "mails", rows.slice(0, 0), "rows")
    assert told(app) == []
    assert app.log.local.find_topic(AUDIT_TOPIC) is None
    masked.table(SEES, "mails", rows, "rows")
    masked.rows(BILLS, "users", [{"id": 7, "mail": MARK, "name": MARK}], "messages")
    masked.check_shown(SEES, "mails", "the events behind a row", upstream=True)
    masked.audit.queried(SEES, "SELECT * FROM `Users` JOIN countries", "query of spark")

    assert told(app) == [
        ("read", "support", "mails", ["address"], 2, "rows"),
        ("read", "invoices", "users", ["mail"], 1, "messages"),
        ("read", "support", "users", ["id", "mail", "name"], None, "the events behind a row"),
        ("read", "support", "users", ["id", "mail", "name"], None, "query of spark"),
    ]
    topic = app.log.local.get_topic(AUDIT_TOPIC)
    assert topic.settings.proof
    assert MARK.encode() not in b"".join(path.read_bytes() for path in (topic.directory / "0").iterdir())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM USERS",
        "SELECT * FROM main.users",
        "SELECT * FROM users--of all",
        "SELECT users.* FROM`users`",
        'SELECT u.mail FROM "Users"u',
        "SELECT * FROM[users]",
        "TABLE/**/users",
        "SELECT * FROM users$metadata",
        "WITH u AS(SELECT*FROM-- all\nusers)SELECT*FROM u",
    ],
)
def test_a_query_is_on_record_however_it_writes_a_name(app: hw.App, sql: str) -> None:
    masked = MaskedAnswers(app, audited=True)

    masked.audit.queried(SEES, sql, "query of store")

    assert told(app) == [("read", "support", "users", ["id", "mail", "name"], None, "query of store")]


def test_a_query_of_another_name_is_not_on_record(app: hw.App) -> None:
    masked = MaskedAnswers(app, audited=True)

    masked.audit.queried(SEES, "SELECT users_id, _users FROM countries", "query of store")

    assert told(app) == []


def test_an_answer_that_cannot_be_put_on_record_is_not_given(app: hw.App) -> None:
    masked = MaskedAnswers(app, audited=True)
    rows = pa.table({"address": ["a"]})
    masked.table(SEES, "mails", rows, "rows")
    assert masked.table(BLIND, "mails", rows, "rows").num_rows == 1
    app.log.close()

    with pytest.raises(ClosedError):
        masked.table(SEES, "mails", rows, "rows")


def test_a_server_tells_of_records_and_shows_the_trail_to_admins_alone(app: hw.App, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    sees = keys.add("support", ["query", "consume", "personal"])
    admin, blind = keys.add("admin", ["admin"]), keys.add("charts", ["consume"])
    state = ServerState(app, ServerSettings(key_file=keys.path))
    client = TestClient(create(state), base_url="http://127.0.0.1:8080", raise_server_exceptions=False)

    def ask(key: str, topic: str) -> Any:
        return client.get(f"/v1/topics/{topic}/records", headers={"Authorization": f"Bearer {key}"})

    with client:
        assert MARK in ask(sees, "users").text
        assert MARK not in ask(blind, "users").text
        read = ("read", "support", "users", ["id", "mail", "name"], 1, "records")
        assert [each for each in told(app) if each[0] != "rights"] == [read]
        with app.log.get_topic(AUDIT_TOPIC).worker("readers", deliveries_max=1) as worker:
            worker.reject(worker.take(1, timeout=5), "it was not understood")
        copies = f"{AUDIT_TOPIC}.readers.dead"
        refused = [ask(key, topic) for key in (sees, blind) for topic in (AUDIT_TOPIC, copies)]
        shown = ask(admin, AUDIT_TOPIC)

    assert [answer.status_code for answer in refused] == [403] * 4
    assert "is for keys with the scope admin" in refused[0].text
    assert shown.status_code == 200
    assert [row["who"] for row in shown.json()["rows"]][-1] == "support"
    nothing = HiddenColumns(frozenset(), others=True).to_json()
    assert state.masked.hidden(SEES) == {AUDIT_TOPIC: nothing, copies: nothing}
    assert state.masked.hidden(Holder("root", frozenset({"admin"}))) == {}


def test_what_keys_are_good_for_is_told_at_the_begin_and_when_it_changes(app: hw.App, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    sees = keys.add("support", ["query", "consume", "personal"], only=["users"])
    keys.add("charts", ["consume"])

    def rights() -> list[tuple[str, str]]:
        return [(relation, detail) for action, _, relation, _, _, detail in told(app) if action == "rights"]

    state = ServerState(app, ServerSettings(key_file=keys.path))
    client = TestClient(create(state), base_url="http://127.0.0.1:8080", raise_server_exceptions=False)

    def ask() -> int:
        headers = {"Authorization": f"Bearer {sees}"}
        return int(client.get("/v1/topics/users/records", headers=headers).status_code)

    with client:
        assert (rights(), ask()) == ([], 200)  # the first read began the trail
        begun = [("support", "consume, personal, query; only users"), ("charts", "consume")]
        assert rights() == begun
        keys.remove("charts")
        keys.add("boss", ["admin"], claims={"tenant": ["acme"]})
        assert ask() == 200
        changed = [("boss", "admin; claims tenant=acme"), ("charts", "removed")]
        assert rights() == begun + changed
        keys.rotate("support")
        assert ask() == 401  # and who came with the old key has seen to it that the change is on record
        assert rights()[4:] == [("support", "renewed: consume, personal, query; only users")]
    ServerState(app, ServerSettings(key_file=keys.path))
    assert rights()[5:] == [("support", "consume, personal, query; only users"), ("boss", "admin; claims tenant=acme")]
    secrets = [each["hash"].encode() for each in keys.entries()] + [sees.encode()]
    topic = app.log.local.get_topic(AUDIT_TOPIC)
    stored = b"".join(path.read_bytes() for path in (topic.directory / "0").iterdir())
    assert [secret for secret in secrets if secret in stored] == []


def test_changed_settings_of_a_topic_are_told(app: hw.App) -> None:
    log = app.log.local
    log.topic("clicks", "id BIGINT", retention="7 days")
    begin_trail(log)
    log.topic("clicks", "id BIGINT", retention="7 days")
    log.topic("clicks", "id BIGINT, url STRING", retention="1 day", compact=False)
    log.delete_topic("clicks")

    found = [(action, relation, columns, detail) for action, _, relation, columns, _, detail in told(app)]
    assert found == [
        ("settings", "clicks", ["retention_ms"], '{"retention_ms": 86400000}'),
        ("settings", "clicks", [], "deleted"),
    ]


def test_rights_that_cannot_be_put_on_record_do_not_count(app: hw.App, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    keys.add("support", ["query", "personal"])
    masked = MaskedAnswers(app, audited=True, keys=keys)
    masked.table(SEES, "mails", pa.table({"address": ["a"]}), "rows")
    boss = Keys(keys.path).add("boss", ["admin"])
    app.log.close()

    for _ in range(2):
        with pytest.raises(ClosedError):
            keys.holder(boss)


def test_erasures_backups_and_restores_are_told_without_the_person(app: hw.App, tmp_path: Path) -> None:
    log = app.log.local
    MaskedAnswers(app, audited=True).table(SEES, "mails", pa.table({"address": ["a"]}), "rows")

    certificate = PersonErasure(log, "user_id", "7", markers=[MARK]).run()
    backup = create_backup(log, tmp_path / "backups").manifest
    restore_home(tmp_path / "backups", tmp_path / "again")

    assert [(each[0], each[2], each[4], each[5]) for each in told(app)[1:]] == [
        ("erase", "user_id", 1, "record 1"),
        ("backup", None, backup.rows, backup.id),
    ]
    assert certificate.hash not in str(told(app))
    with hw.Log(tmp_path / "again") as again:
        assert [row["action"] for row in again.get_topic(AUDIT_TOPIC).rows()] == ["read", "erase", "restore"]
