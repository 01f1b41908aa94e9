"""The server: the log, the views and their changes over HTTP, for any language; and the dashboard.

What it is: one HTTP process without a JVM. It answers from the log, the serving store and the change feed on disk, and
watches over one child, the engine, which runs the app.
Invariants: importing this imports neither FastAPI nor uvicorn; they come with ``headwater[server]`` and are imported
when a server is made.
Not here: running an app (``app.py``), the command ``headwater serve`` (``cli/server/serve_command.py``).
Read next: ``application.py``, then ``server/server_state.py``; ``docs/server.md``.
"""

from __future__ import annotations

from headwater.errors import MissingExtra


def required() -> None:
    """Say what to install when it is not there.

    >>> required()
    """
    with MissingExtra.raised_for("headwater serve", "server"):
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
        import websockets  # noqa: F401
