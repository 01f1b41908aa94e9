"""S3 store: objects in a bucket, by obstore.

What it is: ``S3ObjectStore``. ``create`` is a PUT with ``If-None-Match: *``.
Invariants: those of ``object_store.py``, as far as the server keeps them: AWS does, and so do S3Proxy from 4.0 on and
MinIO; servers that check and then write are racy, and of two writers both may win there (``docs/scale.md``). A request
that is not answered, or with a 5xx or SlowDown, is repeated with growing pauses for a bounded time. What credentials,
bucket and rights are to blame for is ``ObjectStoreRefused`` at once; nothing that is raised has a secret in it.
Not here: addresses (``object_address.py``).
Read next: ``object_store.py``, ``remote_store.py``.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headwater.errors import DiskFull, HeadwaterError, MissingExtra, ObjectStoreRefused, ObjectStoreUnavailable
from headwater.objects.object_store import StoredObject
from headwater.objects.remote_store import RETRY_SECONDS_MAX, RemoteStore

REQUEST_SECONDS_MAX = 20
CONNECT_SECONDS_MAX = 3
CODE = re.compile(r"<Code>(\w+)</Code>")
STATUS = re.compile(r"status code: (\d{3})\b")
FULL = {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "EntityTooLarge"}
WORTH_REPEATING = {"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "OperationAborted"}


def client() -> Any:
    """obstore, imported late."""
    with MissingExtra.raised_for("an object store on S3", "s3"):
        import obstore
        import obstore.exceptions
        import obstore.store
    return obstore


class S3ObjectStore(RemoteStore):
    """A bucket, or the part of it below a prefix."""

    def __init__(self, bucket: str, prefix: str, *, endpoint: str | None = None, region: str | None = None) -> None:
        self.shown = f"s3://{bucket}/{prefix}" + (f" at {endpoint}" if endpoint else "")
        self.bucket = bucket
        self._obstore = client()
        self.answers = (self._obstore.exceptions.AlreadyExistsError,)
        self.failures = (Exception,)  # obstore's have no name that all of them have
        self._prefix = f"{prefix}/" if prefix else ""
        options: dict[str, Any] = {"virtual_hosted_style_request": endpoint is None}
        if endpoint is not None:
            self._check_credentials()
            options |= {"endpoint": endpoint, "region": region or "us-east-1"}
        elif region is not None:
            options["region"] = region
        self._store = self._obstore.store.S3Store(
            bucket,
            **options,
            client_options={
                "allow_http": endpoint is not None and endpoint.startswith("http://"),
                "timeout": dt.timedelta(seconds=REQUEST_SECONDS_MAX),
                "connect_timeout": dt.timedelta(seconds=CONNECT_SECONDS_MAX),
            },
            # Attempts are made here: obstore does not repeat a PUT that was not answered.
            retry_config={"max_retries": 0, "retry_timeout": dt.timedelta(seconds=RETRY_SECONDS_MAX)},
        )

    def _check_credentials(self) -> None:
        """A server of one's own knows no role of the machine, which obstore would ask Amazon's network for."""
        if not os.environ.get("AWS_ACCESS_KEY_ID") or not os.environ.get("AWS_SECRET_ACCESS_KEY"):
            raise ObjectStoreRefused(
                f"there are no credentials for {self.shown}",
                hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
                address=self.shown,
            )

    def create(self, name: str, data: bytes) -> bool:
        """See ``ObjectStore.create``."""
        try:
            self.called(name, lambda: self._obstore.put(self._store, self._prefix + name, data, mode="create"))
        except self._obstore.exceptions.AlreadyExistsError:
            return False
        return True

    def put(self, name: str, data: bytes | Path | Iterable[bytes]) -> None:
        """See ``ObjectStore.put``."""
        self.called(name, lambda: self._obstore.put(self._store, self._prefix + name, data))

    def copy(self, name: str, other: str) -> None:
        """See ``ObjectStore.copy``."""
        self.called(name, lambda: self._obstore.copy(self._store, self._prefix + name, self._prefix + other))

    def get(self, name: str) -> bytes | None:
        """See ``ObjectStore.get``."""
        return self.found(name, lambda: bytes(self._obstore.get(self._store, self._prefix + name).bytes()))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """See ``ObjectStore.get_range``."""
        return self.found(
            name, lambda: bytes(self._obstore.get_range(self._store, self._prefix + name, start=start, length=length))
        )

    def read(self, name: str) -> Iterator[bytes] | None:
        """See ``ObjectStore.read``."""
        about = self.found(name, lambda: self._obstore.head(self._store, self._prefix + name))
        return None if about is None else self.pieces(name, int(about["size"]))

    def list(self, prefix: str) -> list[StoredObject]:
        """See ``ObjectStore.list``."""

        def listed() -> list[StoredObject]:
            pages = self._obstore.list(self._store, self._prefix + prefix, chunk_size=1000)
            return [
                StoredObject(one["path"].removeprefix(self._prefix), one["size"], one["last_modified"].timestamp())
                for page in pages
                for one in page
            ]

        return sorted(self.called(prefix, listed), key=lambda each: each.name)

    def delete(self, name: str) -> None:
        """See ``ObjectStore.delete``."""
        self.found(name, lambda: self._obstore.delete(self._store, self._prefix + name))

    def mapped(self, name: str, error: Exception, attempts: int) -> Exception:
        """See ``RemoteStore.mapped``."""
        text = str(error)
        code = next(iter(CODE.findall(text)), None)
        kinds = self._obstore.exceptions
        if isinstance(error, HeadwaterError):
            return error
        if code == "NoSuchBucket":
            return ObjectStoreRefused(
                f'there is no bucket "{self.bucket}"',
                detail=f"Asked was {self.shown}.",
                hint="Make the bucket, or correct the address.",
                address=self.shown,
            )
        if isinstance(error, FileNotFoundError | kinds.NotFoundError):
            return FileNotFoundError(name)
        if isinstance(error, kinds.UnauthenticatedError) or code in ("InvalidAccessKeyId", "SignatureDoesNotMatch"):
            return ObjectStoreRefused(
                f"{self.shown} does not take the credentials" + (f" ({code})" if code else ""),
                hint="Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the machine's role.",
                address=self.shown,
            )
        if isinstance(error, kinds.PermissionDeniedError) or code == "AccessDenied":
            return ObjectStoreRefused(
                f"{self.shown} forbids it: {name}" + (f" ({code})" if code else ""),
                hint="Rights are needed to get, put, delete and list objects there.",
                address=self.shown,
            )
        status = next(iter(STATUS.findall(text)), None)
        if code in FULL or status == "507":
            return DiskFull(
                f"no space is left at {self.shown}" + (f" ({code})" if code else ""),
                detail="Nothing of what was under way counts; what was committed before it is safe.",
                hint="Free some space there, or raise its quota, and run it again.",
            )
        refused = status is not None and (status.startswith("4") or status == "501")
        if refused and status not in ("408", "429") and code not in WORTH_REPEATING:
            return ObjectStoreRefused(
                f"{self.shown} refuses the request: {code or status}",
                detail=_brief(text),
                hint="Is it an S3 server that knows conditional writes (If-None-Match)?",
                address=self.shown,
            )
        return ObjectStoreUnavailable(
            f"{self.shown} does not answer" + (f": {code}" if code else ""),
            detail=f"Asked was {name}, {attempts} time{'s' if attempts > 1 else ''}. {_brief(text)}",
            hint="Run it again when the store is there again: it goes on where it was.",
            address=self.shown,
        )


def _brief(text: str) -> str:
    """The last cause of a chain of errors, without its debug form."""
    first = text.split("\n\nDebug source")[0]
    return " ".join(first.split())[:300]
