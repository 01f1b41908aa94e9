"""Address: the location and kind of an attached store.

What it is: ``Address`` reads a URL or the path of a file, fills in environment variables on use, and hides its
password.
Invariants: nothing that is shown or raised holds a password or the value of a variable. A relative path becomes
absolute when it is attached, since later queries run elsewhere.
Not here: connecting (``postgres_store.py`` and the others). Read next: ``attachments.py``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from headwater.errors import InvalidDeclaration

VARIABLE = re.compile(r"\$\{(\w+)\}")
SCHEME = re.compile(r"([a-z][a-z0-9+]+):(.*)", re.DOTALL)
SERVERS = {"postgresql": "postgres", "postgres": "postgres", "mysql": "mysql", "mariadb": "mysql"}
FILES = ("sqlite", "parquet", "csv", "delta")
SUFFIXES = {
    ".db": "sqlite",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
}
FORMS = (
    "postgresql://user@host/database, mysql://user@host/database, sqlite:FILE, parquet:FILE or FOLDER, csv:FILE, "
    "delta:FOLDER"
)


@dataclass(frozen=True)
class Address:
    """The location and kind of a store.

    >>> address = Address.read("postgresql://reader:${CRM_PASSWORD}@db.example/crm")
    >>> address.kind, address.shown
    ('postgres', 'postgresql://reader:${CRM_PASSWORD}@db.example/crm')
    >>> Address.read("mysql://reader:secret@db.example/shop").shown
    'mysql://reader:***@db.example/shop'
    """

    kind: str
    url: str  # as given, with an absolute path

    @staticmethod
    def read(text: str) -> Address:
        found = SCHEME.fullmatch(text.strip())
        if found is not None and found[1] in SERVERS:
            _check_server(text)
            return Address(SERVERS[found[1]], text.strip())
        kind, place = (found[1], found[2]) if found is not None and found[1] in FILES else (None, text.strip())
        kind = kind or _guessed(place)
        if kind is None or not place.strip("/"):
            raise InvalidDeclaration(f"{_hidden(text)} is not the address of a store", hint=f"Write one of: {FORMS}.")
        place = place.removeprefix("//") if place.startswith("///") else place
        return Address(kind, f"{kind}:{_absolute(place)}")

    @property
    def is_one_table(self) -> bool:
        """Whether the store is a single table, mentioned by the attachment's name alone."""
        return self.kind in ("parquet", "csv", "delta")

    @property
    def shown(self) -> str:
        return _hidden(self.url)

    @property
    def has_password(self) -> bool:
        """Whether it contains a password in plain text."""
        return self.shown != self.url

    @property
    def path(self) -> Path:
        """The path of a file store."""
        return Path(_filled(self.url.partition(":")[2], quoted=False))

    @property
    def filled(self) -> str:
        """The URL of a server with the variables' values. Not to be shown."""
        return _filled(self.url, quoted=True)


def _guessed(place: str) -> str | None:
    path = Path(place).expanduser()
    if (path / "_delta_log").is_dir():
        return "delta"
    if path.is_dir():
        return "parquet" if any(path.rglob("*.parquet")) else "csv" if any(path.rglob("*.csv")) else None
    return next((kind for suffix, kind in SUFFIXES.items() if place.lower().endswith(suffix)), None)


def _absolute(place: str) -> str:
    if VARIABLE.match(place):
        return place
    return str(Path(place).expanduser().absolute())


def _check_server(text: str) -> None:
    try:
        parts = urlsplit(VARIABLE.sub("1", text))
        _ = parts.port
    except ValueError as error:
        raise InvalidDeclaration(
            f"{_hidden(text)} is not a URL: {error}", hint="Give a password with special characters as ${VARIABLE}."
        ) from error
    if not parts.path.strip("/"):
        raise InvalidDeclaration(f"{_hidden(text)} names no database", hint=f"Write one of: {FORMS}.")


def _hidden(text: str) -> str:
    """The text without passwords, of the user's part and of ``password=`` in the query."""
    if "://" not in text:
        return text
    # A password may hold unquoted special characters: everything between the first colon and the last @ is hidden.
    found = re.match(r"([a-z0-9+]+://[^:/@]*):(.*)@([^@]*)", text, re.DOTALL)
    if found is not None and not VARIABLE.fullmatch(found[2]):
        text = f"{found[1]}:***@{found[3]}"
    return re.sub(r"((?:password|passwd|pwd)=)(?!\$\{)[^&]+", r"\1***", text)


def _filled(text: str, *, quoted: bool) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in os.environ:
            raise InvalidDeclaration(
                f"the environment has no variable {name}, which an attached store's address names",
                hint=f"Set it where the query runs: export {name}=…",
                variable=name,
            )
        return quote(os.environ[name], safe="") if quoted else os.environ[name]

    return VARIABLE.sub(value, text)
