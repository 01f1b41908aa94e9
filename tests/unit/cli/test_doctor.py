"""The doctor: what it finds on a machine and in a home, and its status."""

from __future__ import annotations

import json
import os
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli.doctor import doctor_command, home_checks, machine_checks
from headwater.cli.doctor.findings import Finding, FindingState
from headwater.cli.main import app
from headwater.log.catalog import encrypted_volume
from headwater.log.catalog.home_folder import FORMAT, FORMAT_FILE
from headwater.log.home import Log

PYPROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def asked(home: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    result = CliRunner().invoke(app, ["doctor", "--json", "--home", str(home)])
    return result.exit_code, {each["check"]: each for each in json.loads(result.stdout)["checks"]}


def found(findings: Iterator[Finding]) -> dict[str, Finding]:
    return {each.check: each for each in findings}


def test_a_healthy_home_is_told_line_by_line(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        log.topic("orders", "id BIGINT").append([{"id": 1}])
        status, checks = asked(tmp_path / "home")

    assert status == 0
    assert checks["home"]["found"] == f"{tmp_path / 'home'}, format {FORMAT}"
    assert {checks[name]["state"] for name in ("catalog", "permissions", "disk space", "clock", "loopback")} == {"ok"}
    assert checks["disk speed"]["found"].startswith("a write is durable after")


def test_where_encryption_is_required_the_doctor_says_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encrypted_volume, "encryption_of", lambda path: None if path == tmp_path else "gocryptfs")
    _, before = asked(tmp_path)
    monkeypatch.setenv("HEADWATER_HOME_ENCRYPTION", "required")
    _, after = asked(tmp_path)

    assert [each["encrypted volume"]["state"] for each in (before, after)] == ["ok", "fail"]
    assert after["encrypted temporary files"]["state"] == "ok"


def test_a_home_that_is_not_there_is_no_fault_and_is_not_made(tmp_path: Path) -> None:
    status, checks = asked(tmp_path / "none")

    assert status == 0
    assert "the first topic makes it" in checks["home"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_people_get_a_line_and_a_way_out(tmp_path: Path) -> None:
    (tmp_path / FORMAT_FILE).write_text(json.dumps({"format": FORMAT + 1}))

    result = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path)])

    assert result.exit_code == 1
    assert f"has format {FORMAT + 1}; this headwater knows {FORMAT}" in result.stdout
    assert "Install the newer headwater that wrote it." in result.stdout
    assert "1 wrong" in result.stdout


def test_a_damaged_home_fails(tmp_path: Path) -> None:
    with Log(tmp_path / "home"):
        pass
    (tmp_path / "home" / "catalog.sqlite").write_bytes(b"not a database, and long enough to be none" * 100)

    status, checks = asked(tmp_path / "home")
    (tmp_path / "home" / FORMAT_FILE).write_text("{")
    again, unreadable = asked(tmp_path / "home")

    assert (status, checks["catalog"]["state"]) == (1, "fail")
    assert (again, unreadable["home"]["state"]) == (1, "fail")


def test_records_of_the_future_are_told(tmp_path: Path) -> None:
    with Log(tmp_path) as log, log.catalog.write() as db:
        later = round((time.time() + 3600) * 1e6)
        db.execute("INSERT INTO ticks VALUES ('shop', 1, 1, ?, '{}')", (later,))

    checks = found(home_checks.contents(tmp_path))

    assert checks["clock of the home"].state is FindingState.WARN


def test_who_has_the_home_open_is_told(tmp_path: Path) -> None:
    from tests.unit.command_line import CommandLine

    with Log(tmp_path) as log:
        log.topic("orders", "id BIGINT").append([{"id": 1}])
    other = CommandLine(tmp_path).start("topic", "tail", "orders", "-f", "--json")
    try:
        assert other.stdout is not None
        other.stdout.readline()  # it has opened the home

        assert home_checks.in_use(tmp_path) == [other.pid]
    finally:
        other.kill()
        other.communicate()


def test_a_java_that_is_not_there_or_too_old_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'java version \"1.8.0_301\"' >&2\n")
    old.chmod(0o755)

    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    (nowhere,) = machine_checks.java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (eight,) = machine_checks.java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    (none,) = machine_checks.java()

    assert [each.state for each in (nowhere, eight, none)] == [FindingState.FAIL] * 3
    assert eight.found.startswith("8, ")
    assert none.mend == machine_checks.JAVA_HINT


def test_another_python_for_spark_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/true")
    wrong = found(machine_checks.python())["PYSPARK_PYTHON"]
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    right = found(machine_checks.python())["PYSPARK_PYTHON"]

    assert (wrong.state, right.state) == (FindingState.FAIL, FindingState.OK)


def test_a_missing_extra_has_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "_installed", lambda name: None if name in ("pymysql", "pandas") else "4.3.0")

    checks = found(machine_checks.packages())

    assert (checks["[mysql]"].state, checks["[mysql]"].mend) == (FindingState.OK, 'pip install "headwater[mysql]"')
    assert checks["[spark]"].state is FindingState.WARN
    assert checks["packages"].state is FindingState.OK


def test_the_packages_are_those_of_the_project() -> None:
    def named(requirements: list[str]) -> set[str]:
        names = {each.split(";")[0].split("[")[0].split(">")[0].strip() for each in requirements}
        return names - {"headwater"}

    extras = {name: named(wanted) for name, wanted in PYPROJECT["optional-dependencies"].items()}

    assert named(PYPROJECT["dependencies"]) >= set(machine_checks.REQUIRED)
    for name, packages in machine_checks.EXTRAS.items():
        assert set(packages) == extras[name], name
    assert set(extras) - set(machine_checks.EXTRAS) <= {"bench", "dev", "pandas"}
    assert home_checks.FORMAT == FORMAT


def test_a_check_that_breaks_is_a_finding() -> None:
    def broken() -> Iterator[Finding]:
        raise OSError("oh")
        yield

    (finding,) = doctor_command.held("odd", broken)

    assert (finding.state, finding.found) == (FindingState.FAIL, "could not be looked at: OSError: oh")


def test_a_home_that_cannot_be_written_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)

    (finding,) = home_checks.rights(tmp_path)

    assert finding.state is FindingState.FAIL
    assert "chown" in str(finding.mend)


def test_the_kind_of_a_file_system_is_told() -> None:
    assert home_checks.file_system(Path("/proc/self")) in ("proc", None)
