"""Personal data of an app: what its topics and views say of people.

What it is: ``AppPrivacy``, a part of what an app declares; ``App`` comes from it.
Invariants: nothing is stored here: what is personal is declared with topics and views, and looked up.
Not here: declarations (``log/schema/personal_columns.py``), how they are carried on (``views/privacy``).
Read next: ``views/privacy/personal_data.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.app_searches import AppSearches

if TYPE_CHECKING:
    from headwater.durations import Duration
    from headwater.log.contract import EventLog
    from headwater.sinks.runner.declared_sinks import DeclaredSinks
    from headwater.views.privacy.personal_data import PersonalData
    from headwater.views.privacy.privacy_map import PersonalPlace
    from headwater.views.privacy.row_rules import RowRules
    from headwater.views.view import View


# Sinks into topics of the log, by their kind: the topic that a sink writes.
COPIES: dict[str, Callable[[Any], str | None]] = {
    "topic": lambda handle: handle.sink.name,
    "replies": lambda handle: f"{handle.sink.service.name}_replies",
    "constraint": lambda handle: f"{handle.view}_violations",
}


class AppPrivacy(AppSearches):
    """The personal data of an app."""

    has_purposes = False  # that were declared here: rows are looked through once a day

    if TYPE_CHECKING:  # of the other half of the app

        @property
        def log(self) -> EventLog: ...
        @property
        def views(self) -> list[View]: ...
        @property
        def sinks(self) -> DeclaredSinks: ...

    @property
    def personal_data(self) -> PersonalData:
        """Which columns of topics and views are personal, and why. See ``docs/privacy.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.table("users", "id BIGINT, email STRING", key="id", privacy={"email": hw.Personal("user_id")})
        >>> _ = app.view("mails", "SELECT lower(email) AS mail FROM users")
        >>> app.personal_data.of("mails").mark("mail").subjects
        ['user_id']
        """
        from headwater.views.privacy.personal_data import PersonalData

        return PersonalData(lambda: self.log, lambda: self.views, self._copied_to)

    @property
    def row_rules(self) -> RowRules:
        """By which columns the rows of topics and views are told apart for readers. See ``docs/privacy.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.topic("orders", "id BIGINT, tenant STRING", rows_by={"tenant": "tenant"})
        >>> app.row_rules.of("orders").columns
        (('tenant', 'tenant'),)
        """
        from headwater.views.privacy.row_rules import RowRules

        return RowRules(lambda: self.log, lambda: self.views, self._copied_to)

    def purpose(self, name: str, *, keep: Duration) -> None:
        """Declare how long the columns of a purpose are kept, by the event time of their rows, or ``"forever"``.

        Declared after the topics whose columns have it. What is older is blanked once a day while the app runs, by
        ``expire`` and by ``headwater privacy expire``, in the log, views and sinks. See ``docs/privacy.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> address = hw.Personal("user_id", by="user_id", purpose="shipping")
        >>> of_users = {"user_id": hw.Personal("user_id"), "address": address}
        >>> schema = "user_id BIGINT, address STRING, at TIMESTAMP"
        >>> _ = app.topic("orders", schema, event_time="at", privacy=of_users)
        >>> app.purpose("shipping", keep="180 days")
        >>> [(place.column, place.keep) for place in app.privacy_map()]
        [('user_id', ()), ('address', ('shipping 180 days',))]
        """
        from headwater.log.contract import Capability, require
        from headwater.log.erasure.purposes import declare_purpose

        require(self.log, Capability.NATIVE_FILES, "a purpose that ends")
        declare_purpose(self.log.local, name, keep)
        self.has_purposes = True

    def privacy_map(self) -> list[PersonalPlace]:
        """Where personal data is: each column of each topic and view, its subjects, purposes and mask, and who gets it.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> _ = app.table("users", "id BIGINT, email STRING", key="id", privacy={"email": hw.Personal("user_id")})
        >>> _ = app.view("mails", "SELECT lower(email) AS mail FROM users")
        >>> [(place.relation, place.column, place.comes_from) for place in app.privacy_map()]
        [('users', 'email', ('users.email',)), ('mails', 'mail', ('users.email',))]
        """
        from headwater.sinks.postgres.postgres_serving import ALL_VIEWS
        from headwater.views.privacy.privacy_map import CarriedTo, privacy_map

        carried = [
            CarriedTo(each.name, None if each.view == ALL_VIEWS else each.view, each.masked) for each in self.sinks
        ]
        return privacy_map(self.personal_data, self.log, self.views, carried)

    def _copied_to(self) -> dict[str, list[str]]:
        """The topics that sinks of this app write, in lower case, each with the views that they carry."""
        found: dict[str, list[str]] = {}
        for each in self.sinks:
            topic = COPIES.get(each.sink.kind, lambda _: None)(each)
            if topic is not None and not each.masked:
                found.setdefault(topic.lower(), []).append(each.view)
        return found

    def _of_people(self, title: str, sql: str, people_min: int | None) -> str:
        """A view's text with the condition that its groups are of so many people."""
        from headwater.views.privacy.people_min import with_people_min

        return sql if people_min is None else with_people_min(title, sql, people_min, self.personal_data.of)
