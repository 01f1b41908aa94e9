"""One collection of findings for all tests of this folder: printed and written down when they have ended."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.trouble.findings import SEED, WHOLE, Findings

FINDINGS = Findings()


@pytest.fixture(scope="session")
def findings() -> Findings:
    return FINDINGS


def pytest_sessionfinish() -> None:
    if FINDINGS.outcomes:
        FINDINGS.write()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if FINDINGS.outcomes:
        terminalreporter.section(f"trouble (seed {SEED}, {'whole' if WHOLE else 'sampled'})")
        for line in FINDINGS.table():
            terminalreporter.write_line(line)
