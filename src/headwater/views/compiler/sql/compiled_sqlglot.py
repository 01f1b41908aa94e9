"""Compiled sqlglot: refused with a sentence, since its classes cannot be extended.

What it is: ``refuse_compiled``, called when the dialect is imported. ``sqlglot[c]`` installs compiled modules in the
place of sqlglot's own, and Python raises a ``TypeError`` when a class of ours extends one of those.
Invariants: sqlglot in Python is never refused.
Not here: the dialect itself (``dialect.py``). Read next: ``dialect.py``.
"""

from __future__ import annotations

from headwater.errors import Misuse


def refuse_compiled(file: str | None) -> None:
    """Raise ``Misuse`` when sqlglot's parser, which is in this file, is compiled.

    >>> refuse_compiled("/site-packages/sqlglot/parsers/spark.py")
    """
    if file is not None and not file.endswith((".py", ".pyc")):
        raise Misuse(
            "the compiled form of sqlglot is installed, and Headwater extends classes that it does not let be extended",
            hint="pip uninstall sqlglotc, then pip install --force-reinstall sqlglot.",
            file=file,
        )
