"""Runs: durable before they are named, verified before they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import Corruption
from headwater.log.storage.files import Files
from headwater.testing.crashing_disk import Crash, CrashingFiles
from headwater.views.state.run import Run, adopt_run, read_run, weigh_files, write_run

TABLE = pa.table({"id": list(range(100)), "_weight": [1] * 99 + [-2]})


def write(folder: Path, files: Files | None = None) -> Run:
    return write_run(folder, "7-1", TABLE, first_tick=7, last_tick=7, files=files or Files())


def read(folder: Path, run: Run) -> pa.Table:
    return pa.Table.from_batches(read_run(folder, run, TABLE.schema), schema=TABLE.schema)


def test_a_run_says_what_it_holds(tmp_path: Path):
    run = write(tmp_path)

    assert (run.rows, run.positive, run.plain, run.weight_min) == (100, False, False, -2)
    assert run.bytes == sum(path.stat().st_size for path in run.paths(tmp_path))
    assert read(tmp_path, run).equals(TABLE)


def test_a_run_survives_as_json(tmp_path: Path):
    run = write(tmp_path)

    assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run


def test_files_that_spark_wrote_are_moved_and_not_copied(tmp_path: Path):
    staging = [tmp_path / name for name in ("part-0.parquet", "part-1.parquet")]
    for path in staging:
        pq.write_table(TABLE, path)
    weighed = weigh_files(staging)

    run = adopt_run(tmp_path / "trace", "8-1", staging, weighed, first_tick=8, last_tick=8, files=Files())

    assert run.rows == 200
    assert not any(path.exists() for path in staging)
    assert read(tmp_path / "trace", run).equals(pa.concat_tables([TABLE, TABLE]))


def test_a_repeated_write_replaces_the_file(tmp_path: Path):
    first, second = write(tmp_path), write(tmp_path)

    assert first == second
    assert [path.name for path in tmp_path.iterdir()] == ["7-1.parquet"]


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_an_error_and_never_data(tmp_path: Path, damage: str):
    run = write(tmp_path)
    (path,) = run.paths(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data if damage == "flip" else data[:-1])
    if damage == "remove":
        path.unlink()

    with pytest.raises(Corruption, match=r"7-1\.parquet is (damaged|missing)") as caught:
        read(tmp_path, run)

    assert "rebuild the view" in str(caught.value)


def boundaries() -> int:
    import tempfile

    counting = CrashingFiles()
    write(Path(tempfile.mkdtemp()) / "trace", counting)
    return len(counting.boundaries)


@pytest.mark.parametrize("crash_at", range(boundaries()))
def test_after_a_power_cut_the_write_is_repeated_and_whole(tmp_path: Path, crash_at: int):
    with pytest.raises(Crash):
        write(tmp_path / "trace", CrashingFiles(crash_at=crash_at, power_cut=True))

    run = write(tmp_path / "trace")

    assert read(tmp_path / "trace", run).equals(TABLE)


def test_a_run_that_was_named_survives_a_power_cut(tmp_path: Path):
    files = CrashingFiles(power_cut=True)
    run = write(tmp_path / "trace", files)

    files.cut_power()

    assert read(tmp_path / "trace", run).equals(TABLE)
