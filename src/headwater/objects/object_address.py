"""Object address: where an object store is, and opening it.

What it is: ``ObjectAddress`` reads ``s3://bucket/prefix?endpoint=…``, ``file:///folder`` or ``webhdfs://host/folder``;
``open_store`` opens it.
Invariants: an address has no secret: credentials come from the environment, or from the machine's role, and an address
that has some is refused. Reading an address connects to nothing.
Not here: the stores (``s3_store.py``, ``folder_store.py``, ``webhdfs_store.py``).
Read next: ``object_store.py``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from headwater.errors import InvalidDeclaration
from headwater.objects.folder_store import FolderStore
from headwater.objects.object_store import ObjectStore

FORMS = (
    "s3://bucket/prefix, s3://bucket/prefix?endpoint=http://127.0.0.1:9000, file:///shared/folder,"
    " or webhdfs://namenode:9870/folder"
)
HDFS_PORT = 9870  # of a NameNode's HTTP interface
SETTINGS = {"endpoint", "region", "cache_bytes", "lease_seconds"}
CACHE_BYTES = 20 << 30
LEASE_SECONDS = 10


@dataclass(frozen=True)
class ObjectAddress:
    """The location of an object store.

    >>> address = ObjectAddress.parse("s3://lake/shop?endpoint=http://127.0.0.1:9000&cache_bytes=1000000")
    >>> address.bucket, address.prefix, address.endpoint, address.cache_bytes
    ('lake', 'shop', 'http://127.0.0.1:9000', 1000000)
    >>> ObjectAddress.parse("file:///mnt/shop").path
    PosixPath('/mnt/shop')
    >>> hdfs = ObjectAddress.parse("webhdfs://namenode/apps/shop")
    >>> hdfs.server, hdfs.prefix
    ('namenode:9870', 'apps/shop')
    """

    text: str
    bucket: str  # "" of a folder, and of HDFS
    prefix: str  # of a folder its path
    endpoint: str | None = None
    region: str | None = None
    cache_bytes: int = CACHE_BYTES  # of files kept on this machine
    lease_seconds: int = LEASE_SECONDS  # a standby takes over from a process that was silent for so long
    server: str | None = None  # of HDFS: the NameNode's HTTP address

    @staticmethod
    def parse(text: str) -> ObjectAddress:
        """Read an address; ``InvalidDeclaration`` says what is wrong with it."""
        try:
            parts = urlsplit(text)
            settings = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
            port = parts.port
        except ValueError as error:
            raise InvalidDeclaration(f"{_hidden(text)!r} is not an address: {error}", hint=f"Write {FORMS}.") from error
        if parts.username or parts.password or (settings.keys() - SETTINGS and _names_secret(settings)):
            raise InvalidDeclaration(
                f"the address {_hidden(text)!r} has credentials in it",
                detail="Addresses are stored and shown.",
                hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role.",
            )
        unknown = sorted(settings.keys() - SETTINGS)
        if unknown:
            raise InvalidDeclaration(
                f'the address {_hidden(text)!r} has a setting "{unknown[0]}", which there is not',
                hint=f"There are: {', '.join(sorted(SETTINGS))}.",
            )
        if parts.scheme == "hdfs":
            raise InvalidDeclaration(
                f"HDFS is reached by its HTTP interface, and not by {_hidden(text)!r}",
                detail="A client of its other interface needs libhdfs and a whole Hadoop.",
                hint=f"Write webhdfs://NAMENODE:{HDFS_PORT}/FOLDER, with the port of the NameNode's HTTP address.",
            )
        is_folder = parts.scheme == "file" and not parts.netloc and parts.path.strip("/")
        is_hdfs = parts.scheme == "webhdfs" and bool(parts.hostname)
        if is_hdfs and settings.keys() & {"endpoint", "region"}:
            raise InvalidDeclaration(
                f"the address {_hidden(text)!r} has an endpoint or a region, which HDFS has not",
                hint="Leave it out: the NameNode is the host of the address.",
            )
        if not is_folder and not is_hdfs and not (parts.scheme == "s3" and parts.netloc):
            raise InvalidDeclaration(f"{_hidden(text)!r} is not the address of an object store", hint=f"Write {FORMS}.")
        cache = settings.get("cache_bytes", str(CACHE_BYTES))
        if not cache.isdigit():
            raise InvalidDeclaration(f"cache_bytes is a number of bytes, not {cache!r}", hint="Write cache_bytes=N.")
        lease = settings.get("lease_seconds", str(LEASE_SECONDS))
        if not lease.isdigit() or not int(lease):
            raise InvalidDeclaration(
                f"lease_seconds is a number of seconds, not {lease!r}", hint="Write lease_seconds=10."
            )
        path = unquote(parts.path)
        return ObjectAddress(
            text,
            "" if is_folder or is_hdfs else parts.netloc,
            path.rstrip("/") if is_folder else path.strip("/"),
            settings.get("endpoint"),
            settings.get("region"),
            int(cache),
            int(lease),
            f"{parts.hostname}:{port or HDFS_PORT}" if is_hdfs else None,
        )

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.prefix)

    def open(self) -> ObjectStore:
        """The store at this address; one for each address and process."""
        return open_store(self)

    def __str__(self) -> str:
        return self.text


@functools.lru_cache(maxsize=64)
def open_store(address: ObjectAddress) -> ObjectStore:
    """The store at an address; the same one when it is asked for again."""
    return made_store(address)


def made_store(address: ObjectAddress) -> ObjectStore:
    """The store at an address, with the credentials that there are now."""
    if address.server is not None:
        from headwater.objects.webhdfs_store import WebHdfsStore

        return WebHdfsStore(address.server, address.prefix)
    if not address.bucket:
        return FolderStore(address.path)
    from headwater.objects.s3_store import S3ObjectStore

    return S3ObjectStore(address.bucket, address.prefix, endpoint=address.endpoint, region=address.region)


def _names_secret(settings: dict[str, str]) -> bool:
    return any(word in name.lower() for name in settings for word in ("key", "secret", "password", "token"))


def _hidden(text: str) -> str:
    """The address without what may be a secret."""
    place, _, _ = text.partition("?")
    scheme, _, rest = place.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if rest else place
