"""The archive of the executors' environment: whole, made once, and enough for an interpreter that has nothing."""

from __future__ import annotations

import importlib.util
import py_compile
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headwater.errors import InvalidDeclaration, Unavailable
from headwater.testing.local_server import free_port
from headwater.views.spark import executor_environment
from headwater.views.spark.cluster_master import check_answers


def test_an_interpreter_without_packages_imports_what_was_packed(tmp_path: Path):
    (tmp_path / "prices.py").write_text("TAX = 19\n")
    py_compile.compile(str(tmp_path / "prices.py"))
    archive = executor_environment.pack(tmp_path, modules=[tmp_path / "prices.py"])
    zipfile.ZipFile(archive).extractall(tmp_path / "environment")

    # -S: without site-packages; -E: without our variables.
    script = "import headwater, pyarrow, pandas, prices; print(headwater.__file__, pyarrow.__file__, prices.TAX)"
    path = f"import sys; sys.path.append({str(tmp_path / 'environment')!r}); "
    # -v: it tells which files it takes; unpacking gave the sources another time.
    command = [sys.executable, "-E", "-S", "-v", "-c", path + script]
    said = subprocess.run(command, capture_output=True, text=True, check=True)

    for word in said.stdout.split()[:2]:
        assert word.startswith(str(tmp_path)), said.stdout
    assert said.stdout.split()[2] == "19"
    compiled = importlib.util.cache_from_source(str(tmp_path / "environment" / "prices.py"))
    assert f"# code object from '{compiled}'" in said.stderr


def test_the_same_content_is_packed_once_and_other_content_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(executor_environment, "ALWAYS", ("xxhash",))  # Arrow and pandas take seconds
    module = tmp_path / "prices.py"
    module.write_text("TAX = 19\n")
    first = executor_environment.pack(tmp_path / "archives", modules=[module])
    written = first.stat().st_mtime_ns

    assert executor_environment.pack(tmp_path / "archives", modules=[module]) == first
    assert first.stat().st_mtime_ns == written
    module.write_text("TAX = 190\n")
    assert executor_environment.pack(tmp_path / "archives", modules=[module]) != first
    assert not list((tmp_path / "archives").glob("*.tmp"))


def test_a_package_that_is_not_here_is_named(tmp_path: Path):
    with pytest.raises(InvalidDeclaration, match='"no-such-package" is not installed here'):
        executor_environment.pack(tmp_path, packages=["no-such-package"])
    assert not list(tmp_path.iterdir())


def test_one_master_of_several_that_answers_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        check_answers(f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}")
    with pytest.raises(Unavailable, match="no Spark master answers at"):
        check_answers(f"spark://127.0.0.1:{free_port()}")
