"""PostgreSQL captured, beside what PostgreSQL's own programs do with the same rows.

What it is: five measurements: a backfill beside ``COPY … TO STDOUT``, a stream beside ``pg_recvlogical`` writing to a
file, the time from a commit to the log, the time from a commit to a view beside that from an append, and what the
server keeps after many writes.
Invariants: a median of several runs; ours ends when the marker is durable, the peer when its file has the last change.
Not here: sizes (``scale.py``).
Read next: ``scale.py``.
"""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from decimal import Decimal
from pathlib import Path

import headwater as hw
from bench.capture.scale import Scale, make_orders
from bench.views.scale import Lines
from headwater.testing.postgres_server import PostgresServer, programs
from headwater.views.serving.serving_store import ServingStore

WARM_UPS = 20


def backfill(scale: Scale, folder: Path) -> Lines:
    """Rows per second of a backfill, beside ``COPY … TO STDOUT`` in psql."""
    lines = Lines()
    with PostgresServer() as server:
        make_orders(server, scale.rows)
        ours, peer = [], []
        for sample in range(scale.samples):
            peer.append(_copied(server))
            with hw.App(f"bench{sample}", home=folder / f"home{sample}") as app:
                orders = app.table("orders", source=hw.capture.Postgres(server.dsn, table="orders"))
                began = time.perf_counter()
                app.capture(until="caught up")
                ours.append(time.perf_counter() - began)
                assert orders.topic.end_offsets()[0] == scale.rows
                app.captures.drop(app.log)
    rate, peer_rate = scale.rows / statistics.median(ours), scale.rows / statistics.median(peer)
    lines.figure("backfill", rate, "rows/s")
    lines.figure("COPY TO STDOUT", peer_rate, "rows/s")
    lines.at_least("backfill beside COPY", rate / peer_rate, 0.4)
    return lines


def _copied(server: PostgresServer) -> float:
    command = [str(programs() / "psql"), "-d", server.dsn, "-c", "COPY orders TO STDOUT"]
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def stream(scale: Scale, folder: Path) -> Lines:
    """Changes per second into the log, beside ``pg_recvlogical`` into a file."""
    lines = Lines()
    with PostgresServer(max_wal_size="8GB") as server, hw.App("bench", home=folder / "home") as app:
        make_orders(server, 1000)
        orders = app.table("orders", source=hw.capture.Postgres(server.dsn, table="orders", slot="ours"))
        app.capture(until="caught up")
        ours, peer = [], []
        for sample in range(scale.samples):
            server.execute(f"SELECT pg_create_logical_replication_slot('theirs{sample}', 'pgoutput')")
            before = orders.topic.end_offsets()[0]
            changes = _write(server, scale.changes)
            peer.append(_received(server, f"theirs{sample}", folder / f"out{sample}"))
            server.execute(f"SELECT pg_drop_replication_slot('theirs{sample}')")
            began = time.perf_counter()
            app.capture(until="caught up")
            ours.append(time.perf_counter() - began)
            assert orders.topic.end_offsets()[0] - before == changes
    rate, peer_rate = scale.changes / statistics.median(ours), scale.changes / statistics.median(peer)
    lines.figure("stream", rate, "changes/s")
    lines.figure("pg_recvlogical", peer_rate, "changes/s")
    lines.at_least("stream beside pg_recvlogical", rate / peer_rate, 0.2)
    return lines


def _write(server: PostgresServer, changes: int) -> int:
    """Transactions of ten rows each: half of them come, a half change."""
    (first,) = server.execute("SELECT coalesce(max(id), 0) + 1 FROM orders")[0]
    server.execute(
        f"DO $$ BEGIN FOR k IN 0..{changes // 20 - 1} LOOP "
        f"INSERT INTO orders SELECT {first} + k * 10 + g, g, 1.5, 'new', now() FROM generate_series(0, 9) g; COMMIT; "
        f"UPDATE orders SET status = 'paid' WHERE id BETWEEN {first} + k * 10 AND {first} + k * 10 + 9; COMMIT; "
        "END LOOP; END $$"
    )
    return changes // 20 * 20


def _received(server: PostgresServer, slot: str, out: Path) -> float:
    (end,) = server.execute("SELECT pg_current_wal_flush_lsn()::text")[0]
    command = [
        str(programs() / "pg_recvlogical"),
        "-d",
        server.dsn,
        "--slot",
        slot,
        "--start",
        "-f",
        str(out),
        "--endpos",
        end,
        "-o",
        "proto_version=1",
        "-o",
        "publication_names=ours",
        "--fsync-interval=10",
    ]
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


def latency(scale: Scale, folder: Path) -> Lines:
    """Milliseconds from a commit's return to its row being in the log and marked."""
    lines = Lines()
    with PostgresServer() as server, hw.App("bench", home=folder / "home") as app:
        make_orders(server, 1000)
        orders = app.table("orders", source=hw.capture.Postgres(server.dsn, table="orders"))
        app.capture(until="caught up")
        thread = threading.Thread(target=lambda: app.capture())
        thread.start()
        from headwater.log.event_time.capture_markers import Markers

        markers = Markers.find(app.log, orders.topic.settings.captured_by or "")
        assert markers is not None
        taken = []
        with server.connect() as connection:
            for number in range(scale.commits):
                seen = markers.topic.end_offsets()
                connection.execute(f"UPDATE orders SET status = 'x{number}' WHERE id = {number % 1000 + 1}")
                began = time.perf_counter()
                assert markers.topic.wait(seen, timeout=10)
                taken.append((time.perf_counter() - began) * 1000)
        app.captures.stop()
        thread.join()
    lines.figure("commit to log, p99", sorted(taken)[int(len(taken) * 0.99)], "ms")
    lines.at_most("commit to log, p50", statistics.median(taken), 50, "ms, at most")
    return lines


def view(scale: Scale, folder: Path) -> Lines:
    """Milliseconds from a commit's return to a view that shows it, beside an append to a table of our own."""
    lines = Lines()
    with PostgresServer() as server, hw.App("bench", home=folder / "home") as app:
        make_orders(server, 1000)
        app.table("orders", source=hw.capture.Postgres(server.dsn, table="orders"))
        twin = app.table("twin", "id BIGINT, user_id BIGINT, amount DECIMAL(12,2), status STRING", key="id")
        for table in ("orders", "twin"):
            app.view(f"{table}_by_status", f"SELECT status, sum(amount) AS total FROM {table} GROUP BY status")
        app.capture(until="caught up")
        twin.upsert([{"id": n, "user_id": n, "amount": Decimal("1.50"), "status": "new"} for n in range(1, 1001)])
        app.tick()
        app.start()
        committed, appended = [], []
        with server.connect() as connection, ServingStore(folder / "home/views/bench/serving.sqlite") as store:
            for number in range(WARM_UPS + scale.commits):
                row = number % 1000 + 1
                connection.execute(f"UPDATE orders SET status = 'x{number}' WHERE id = {row}")
                committed.append(_until_shown(store, "orders_by_status", f"x{number}"))
                began = time.perf_counter()
                twin.upsert([{"id": row, "user_id": row, "amount": Decimal("1.50"), "status": f"x{number}"}])
                appended.append(_until_shown(store, "twin_by_status", f"x{number}", began))
        app.stop()
    ours, tick = (statistics.median(taken[WARM_UPS:]) for taken in (committed, appended))
    lines.figure("commit to view, p50", ours, "ms")
    lines.figure("append to view, p50", tick, "ms")
    lines.at_most("commit to view, beyond append to view", ours - tick, 100, "ms, at most")
    return lines


def _until_shown(store: ServingStore, view: str, status: str, began: float | None = None) -> float:
    began = time.perf_counter() if began is None else began
    tick = store.tick
    while not store.get(view, status):
        assert store.wait(tick + 1, timeout=60)
        tick = store.tick
    return (time.perf_counter() - began) * 1000


def kept(scale: Scale, folder: Path) -> Lines:
    """What the server keeps for the slot after many writes, with a capture that keeps up."""
    lines = Lines()
    with PostgresServer() as server, hw.App("bench", home=folder / "home") as app:
        make_orders(server, 1000)
        server.execute("CREATE TABLE other (id serial PRIMARY KEY, x text)")
        app.table("orders", source=hw.capture.Postgres(server.dsn, table="orders"))
        app.capture(until="caught up")
        (begin,) = server.execute("SELECT pg_current_wal_lsn()::text")[0]
        app.captures.start(app.log)
        written = most = 0
        while written < scale.wal_bytes:
            _write(server, 2000)
            server.execute("INSERT INTO other (x) SELECT repeat(md5(g::text), 30) FROM generate_series(1, 20000) g")
            (written,) = server.execute(f"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '{begin}')::bigint")[0]
            most = max(most, _kept(server))
        began = time.perf_counter()
        # A slot moves on with the next record of running transactions, which the server writes every 15 s.
        while (left := _kept(server)) > 32 << 20 and time.perf_counter() - began < 60:
            time.sleep(0.5)
        waited = time.perf_counter() - began
        app.captures.stop()
    lines.figure("written", written / 2**20, "MB")
    lines.figure("kept for the slot, at most while writing", most / 2**20, "MB")
    lines.figure("until it was let go, after the last write", waited, "s")
    lines.at_most("kept for the slot when caught up", left / 2**20, 32, "MB, at most")
    return lines


def _kept(server: PostgresServer) -> int:
    kept = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots"
    return int(server.execute(kept)[0][0])
