"""Texts: SQL from a file, a query or an expression on each line.

What it is: the ``.sql`` files of this folder, which hold SQL as users write it, with no quotes of Python around.
Invariants: a line that begins with ``-- `` names the section of those that follow.
Not here: what the texts are about (``views/compiler/frontend/name_resolution.py``, ``literals.py``, ``constructs.py``).
Read next: ``trial.py``.
"""

from __future__ import annotations

from pathlib import Path


def texts(name: str) -> list[tuple[str, str]]:
    """Each text with its section."""
    found, section = [], ""
    for line in Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8").splitlines():
        if line.startswith("-- "):
            section = line.removeprefix("-- ")
        elif line.strip():
            found.append((section, line))
    return found
