"""``headwater bench``: measure the log on this machine, beside its peers.

What it is: the options of ``headwater bench log``, which runs ``headwater.bench.log_bench``.
Invariants: the options are those of ``log_bench.log`` (a test compares); they stand here again because importing the
benchmark takes longer than everything else that ``headwater --help`` needs.
Not here: what is measured, and how.
Read next: ``bench/log_bench.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Benchmarks: figures of this machine, beside the peers'.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Benchmarks: figures of this machine, beside the peers'."""


@app.command("log")
def log(
    rows: Annotated[int, typer.Option(min=1_000, help="Rows per sample; slow peers get a share of them.")] = 400_000,
    runs: Annotated[int, typer.Option(min=1, help="Counted rounds; figures are their medians.")] = 5,
    sqlite: Annotated[bool, typer.Option(help="Measure SQLite too.")] = True,
    redis: Annotated[bool, typer.Option(help="Measure Redis Streams too.")] = True,
    nats: Annotated[bool, typer.Option(help="Measure NATS JetStream too.")] = True,
    kafka: Annotated[bool, typer.Option(help="Measure Kafka too.")] = True,
    own: Annotated[bool, typer.Option(help="Measure Headwater; without it, only the peers.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the list for programs instead of the tables.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the list there; in a checkout, bench/out/log.json.")] = None,
    directory: Annotated[Path | None, typer.Option(help="Where all data goes; default: the temporary one.")] = None,
) -> None:
    """Measure the log beside its peers: records/s and MB/s, appending and reading.

    [cyan]headwater bench log --rows 100000 --no-kafka[/cyan]
    [cyan]headwater bench log --json | jq .[/cyan]
    """
    from headwater.bench import log_bench

    log_bench.log(
        rows=rows, runs=runs, sqlite=sqlite, redis=redis, nats=nats, kafka=kafka, own=own, json=json, out=out,
        directory=directory,
    )  # fmt: skip
