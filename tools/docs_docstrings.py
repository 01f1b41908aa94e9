"""Docstrings on the docs site: their examples are code.

What it is: an extension of mkdocstrings' reader that puts fences around the ``>>>`` examples of docstrings, which
Markdown would take for quotations.
Invariants: the docstrings stay as they are, doctests; only the site's copy has fences.
Not here: which objects are shown (``docs_site.py``).
Read next: ``docs_site.py``.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?m)^(>>> .*\n?(?:.+\n?)*)")


class Examples(griffe.Extension):
    """Fences around examples."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called for every class, function and module that was read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""The text with its examples in fences.

    >>> fenced("One.\n\n>>> 1 + 1\n2\n\nTwo.")
    'One.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nTwo.'
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found.group(1).rstrip()}\n```\n", text).rstrip()
