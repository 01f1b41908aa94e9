"""The argument APP.py, which several verbs take.

What it is: ``AppFileArgument``, and ``app_of`` by its short name for the verbs.
Invariants: none of its own; what a file may be is told in ``headwater/app_file.py``.
Not here: running the file (``headwater/app_file.py``).
Read next: ``cli/views/run_command.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.app_file import app_of as app_of

AppFileArgument = Annotated[
    Path, typer.Argument(metavar="APP.py", help="The Python file that declares the app.", show_default=False)
]
