"""The argument APP.py of several verbs.

What it is: ``AppFileArgument``, and ``app_of`` under a short name.
Not here: running the file (``headwater/app_file.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.app_file import app_of as app_of

AppFileArgument = Annotated[
    Path, typer.Argument(metavar="APP.py", help="The Python file that declares the app.", show_default=False)
]
