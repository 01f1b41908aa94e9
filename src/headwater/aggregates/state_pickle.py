"""State pickle: the state of an aggregate as bytes, whatever its class's file was called as it ran.

What it is: ``dumped`` and ``loaded``, ``pickle`` with one difference: classes of the file that declares the aggregate
are named by their name in that file, not by a module.
Invariants: a snapshot that ``python shop.py`` stored is read by ``headwater serve shop.py``, and the other way round:
the one calls the file ``__main__``, the other one does not enter it as a module at all. Bytes that name a class which
is not there raise an error; the snapshot is then ignored.
Not here: when a snapshot is made, and whether it is sound (``snapshots.py``).
Read next: ``snapshots.py``, ``app_file.py``.
"""

from __future__ import annotations

import inspect
import io
import pickle
from typing import Any


def dumped(state: Any, declared: type) -> bytes:
    """A state as bytes.

    >>> class Order:
    ...     paid = False
    >>> order = Order()
    >>> order.paid = True
    >>> loaded(dumped(order, Order), Order).paid
    True
    """
    out = io.BytesIO()
    _Pickler(out, declared).dump(state)
    return out.getvalue()


def loaded(data: bytes, declared: type) -> Any:
    """The state that ``dumped`` has written."""
    return _Unpickler(io.BytesIO(data), declared).load()


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, declared: type) -> None:
        super().__init__(out, protocol=5)
        self._declared = declared

    def persistent_id(self, found: Any) -> Any:
        if not isinstance(found, type) or found.__module__ != self._declared.__module__:
            return None
        if found is self._declared:
            return ""
        return None if "<locals>" in found.__qualname__ else found.__qualname__


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, declared: type) -> None:
        super().__init__(data)
        self._declared = declared

    def persistent_load(self, name: Any) -> Any:
        if name == "":
            return self._declared
        first, *rest = str(name).split(".")
        names = _globals_of(self._declared)
        if first not in names:
            raise pickle.UnpicklingError(f"{self._declared.__name__}'s file has no class {name}")
        found = names[first]
        for part in rest:
            found = getattr(found, part)
        return found


def _globals_of(declared: type) -> dict[str, Any]:
    """The names of the file in which a class is declared."""
    for member in vars(declared).values():
        function = getattr(member, "function", member)  # of a command or an event
        if inspect.isfunction(function):
            return function.__globals__
    return {}
