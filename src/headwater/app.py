"""An app: what a user declares.

What it is: a name and a home, and the topics declared in it. Views and sinks will be declared here too.
Invariants: making an ``App`` touches no disk and starts nothing; the home is opened by the first declaration.
Not here: the log itself (``log/home.py``).
Read next: ``log/topic.py``.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import pyarrow as pa

from headwater.log.home import Log
from headwater.log.settings import check_name
from headwater.log.topic import Topic


class App:
    """An app over one home.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> orders = app.topic("orders", "order_id BIGINT, amount DOUBLE", key="order_id")
    >>> token = orders.append([{"order_id": 1, "amount": 9.5}])
    >>> str(token)
    'orders:0=1'
    """

    def __init__(self, name: str, home: str | os.PathLike[str] | None = None) -> None:
        check_name("app", name)
        self.name = name
        self.home = home if home is not None else f"./{name}-data"
        self._log: Log | None = None

    @property
    def log(self) -> Log:
        """The app's log, opened when first needed."""
        if self._log is None:
            self._log = Log(self.home)
        return self._log

    def topic(self, name: str, schema: str | pa.Schema | None = None, **settings: Any) -> Topic:
        """Declare a topic, or open one that exists. See ``Log.topic``."""
        return self.log.topic(name, schema, **settings)

    def close(self) -> None:
        """Close the log, if it was opened."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> App:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"App({self.name!r}, home={str(self.home)!r})"
