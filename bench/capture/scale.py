"""How large a run of the capture benchmark is, and the database that it runs on.

What it is: ``Scale``, and the tables that every part uses.
Invariants: ours and the peer read the same rows of the same server in one run; no bar is meant for ``quick``.
Not here: what is measured (``postgres_parts.py``).
Read next: ``postgres_parts.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.testing.postgres_server import PostgresServer


@dataclass(frozen=True)
class Scale:
    """Sizes of one run."""

    rows: int = 2_000_000
    changes: int = 500_000
    commits: int = 200
    wal_bytes: int = 1 << 30
    samples: int = 3

    def quick(self) -> Scale:
        """A run of some seconds."""
        return Scale(rows=200_000, changes=50_000, commits=50, wal_bytes=64 << 20, samples=1)


def make_orders(server: PostgresServer, rows: int) -> None:
    """A table as shops have it."""
    server.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, user_id bigint, amount numeric(12,2), status text, at timestamptz)"
    )
    server.execute(
        "INSERT INTO orders SELECT g, g % 100000, (g % 10000) / 7.0, 'status ' || g % 5, now() "
        f"FROM generate_series(1, {rows}) g"
    )
    server.execute("ANALYZE orders")
    server.execute("CHECKPOINT")
