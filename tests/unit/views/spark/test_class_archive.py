"""Java's archive of classes: what Spark's driver is told, for each state of the folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headwater.views.spark import class_archive

WHOLE = bytes.fromhex("a8ab0bf0") + b"classes"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in (class_archive.VARIABLE, *class_archive.UNUSUAL):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "headwater"


def written(options: str) -> Path:
    """The file that Java is told to write."""
    option = options.split()[0]
    assert option.startswith("-XX:ArchiveClassesAtExit=")
    return Path(option.partition("=")[2])


def test_the_first_start_has_one_written_and_the_next_ones_read_it(folder: Path) -> None:
    new = written(class_archive.options())
    new.write_bytes(WHOLE)

    options = class_archive.options()

    (archive,) = folder.iterdir()
    assert options.split()[0] == f"-XX:SharedArchiveFile={archive}"
    assert archive.read_bytes() == WHOLE
    assert class_archive.options() == options


def test_one_that_is_not_finished_is_not_read_and_not_kept_for_ever(folder: Path) -> None:
    new = written(class_archive.options())
    new.write_bytes(bytes(100))  # Java writes the beginning last

    assert written(class_archive.options()) == new
    assert new.exists()

    past = time.time() - class_archive.LEFT_BEHIND_S - 1
    os.utime(new, (past, past))
    written(class_archive.options())
    assert list(folder.iterdir()) == []


def test_archives_that_are_not_used_any_more_are_removed(folder: Path) -> None:
    written(class_archive.options()).write_bytes(WHOLE)
    class_archive.options()
    (archive,) = folder.iterdir()
    (folder / "spark-older.jsa").write_bytes(WHOLE)
    (folder / "spark-other.jsa").write_bytes(WHOLE)
    past = time.time() - class_archive.UNUSED_S - 1
    for path in (archive, folder / "spark-older.jsa"):
        os.utime(path, (past, past))

    class_archive.options()

    assert sorted(folder.iterdir()) == sorted([archive, folder / "spark-other.jsa"])
    assert time.time() - archive.stat().st_mtime < class_archive.UNUSED_S


@pytest.mark.parametrize("name", [class_archive.VARIABLE, "SPARK_HOME", "SPARK_CONF_DIR"])
def test_it_keeps_out_of_the_way(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "off")

    assert class_archive.options() == ""
    assert not folder.exists()


@pytest.mark.parametrize("name", ["with blank", "with'quote", "with,comma"])
def test_a_folder_whose_name_spark_would_take_apart_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))

    assert class_archive.options() == ""


def test_a_folder_that_cannot_be_made_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert class_archive.options() == ""


def test_another_java_has_another_archive(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = written(class_archive.options())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("another")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert written(class_archive.options()).name != first.name
    assert first.parent == folder
