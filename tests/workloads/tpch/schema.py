"""TPC-H: the eight tables, their data, and the 22 queries.

What it is: the schema as tables with keys, ``generate`` (the data, by tpchgen-cli) and ``queries``.
Invariants: the texts are the specification's, with its validation parameters; where a LIMIT would cut through a tie,
the key was added to ORDER BY, and the comment there says so. DECIMAL(15, 2) wherever the specification says decimal.
Not here: what changes in the tables (``refresh.py``).
Read next: ``refresh.py``, ``queries/``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.workloads.tables import Table

QUERIES = Path(__file__).parent / "queries"

TABLES = (
    Table("region", "r_regionkey BIGINT, r_name STRING, r_comment STRING", ("r_regionkey",)),
    Table("nation", "n_nationkey BIGINT, n_name STRING, n_regionkey BIGINT, n_comment STRING", ("n_nationkey",)),
    Table(
        "supplier",
        "s_suppkey BIGINT, s_name STRING, s_address STRING, s_nationkey BIGINT, s_phone STRING, "
        "s_acctbal DECIMAL(15, 2), s_comment STRING",
        ("s_suppkey",),
    ),
    Table(
        "customer",
        "c_custkey BIGINT, c_name STRING, c_address STRING, c_nationkey BIGINT, c_phone STRING, "
        "c_acctbal DECIMAL(15, 2), c_mktsegment STRING, c_comment STRING",
        ("c_custkey",),
    ),
    Table(
        "part",
        "p_partkey BIGINT, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, p_size INT, "
        "p_container STRING, p_retailprice DECIMAL(15, 2), p_comment STRING",
        ("p_partkey",),
    ),
    Table(
        "partsupp",
        "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INT, ps_supplycost DECIMAL(15, 2), ps_comment STRING",
        ("ps_partkey", "ps_suppkey"),
    ),
    Table(
        "orders",
        "o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus STRING, o_totalprice DECIMAL(15, 2), o_orderdate DATE, "
        "o_orderpriority STRING, o_clerk STRING, o_shippriority INT, o_comment STRING",
        ("o_orderkey",),
    ),
    Table(
        "lineitem",
        "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT, l_quantity DECIMAL(15, 2), "
        "l_extendedprice DECIMAL(15, 2), l_discount DECIMAL(15, 2), l_tax DECIMAL(15, 2), l_returnflag STRING, "
        "l_linestatus STRING, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, "
        "l_shipmode STRING, l_comment STRING",
        ("l_orderkey", "l_linenumber"),
    ),
)


def queries(scale: float) -> dict[str, str]:
    """The 22 texts by name. Only Q11 depends on the scale factor: its fraction is 0.0001 / scale.

    The specification begins at scale 1; on data a thousand times smaller no part would ever reach its fraction.
    """
    fraction = f"{min(0.0001 / scale, 0.01):.10f}"
    return {path.stem: path.read_text().replace(":fraction", fraction) for path in sorted(QUERIES.glob("q*.sql"))}


def generate(scale: float, folder: Path) -> dict[str, pa.Table]:
    """The eight tables at this scale factor, generated into ``folder`` as Parquet."""
    # The wheel puts its binary beside the interpreter, which need not be on PATH.
    binary = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which("tpchgen-cli")
    if binary is None:
        raise RuntimeError('tpchgen-cli is not installed; pip install "headwater[dev]"')
    command = [binary, "parquet", "--scale-factor", str(scale), "--output-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return {table.name: pq.read_table(folder / f"{table.name}.parquet").cast(table.schema) for table in TABLES}
