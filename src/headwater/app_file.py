"""An app's file: the Python file that declares topics, tables and views.

What it is: ``app_of`` runs the file and finds the ``App`` in it.
Invariants: the file runs as a module that is not ``__main__``, so that ``if __name__ == "__main__": app.run()`` is not
run; whatever it raises is a user's mistake, told with the line of the file and without a stack trace.
Not here: what is done with the app (``cli/views/run_command.py``, ``server/engine/engine_process.py``).
Read next: ``app.py``.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, InvalidDeclaration

if TYPE_CHECKING:
    from headwater.app import App

MODULE_NAME = "headwater_app_file"


def app_of(path: Path, *, home: Path | None = None) -> App:
    """The app that a file declares; ``home``: on a restored copy, whatever the file says."""
    from headwater.app import App
    from headwater.app_declarations import run_on

    if not path.is_file():
        raise InvalidDeclaration(f"there is no file {path}", hint="Give the Python file that declares the app.")
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # as python does: the file may import its neighbours
    elsewhere = run_on.set(home)
    try:
        names = runpy.run_path(str(path), run_name=MODULE_NAME)
    except HeadwaterError:
        raise
    except SyntaxError as error:
        where = f"{path}:{error.lineno}"
        raise InvalidDeclaration(f"{where} is not Python: {error.msg}", hint="Correct the file.") from error
    except Exception as error:
        raise _failed(path, error) from error
    finally:
        run_on.reset(elsewhere)
        sys.path.remove(folder)
    found = {id(value): value for value in names.values() if isinstance(value, App)}
    if len(found) != 1:
        what = "no App" if not found else f"{len(found)} Apps"
        raise InvalidDeclaration(
            f"{path} declares {what}, it must be one",
            hint='Declare it at the top level of the file: app = hw.App("shop").',
            apps=[app.name for app in found.values()],
        )
    (app,) = found.values()
    app.file = path.resolve()
    return app


def _failed(path: Path, error: Exception) -> InvalidDeclaration:
    steps = traceback.extract_tb(error.__traceback__)
    own = [step for step in steps if Path(step.filename).resolve() == path.resolve()]
    line = f":{own[-1].lineno}" if own else ""
    return InvalidDeclaration(
        f"{path}{line} failed: {type(error).__name__}: {error}",
        detail=own[-1].line if own else None,
        hint="Correct the file; python runs it as it is.",
    )
