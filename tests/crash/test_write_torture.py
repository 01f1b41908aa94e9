"""A short run of the torture of the writing side: real processes, real ``kill -9``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.ledger import many
from tests.crash.write_torture import torture


@pytest.mark.timeout(600)
def test_nothing_is_torn_lost_doubled_or_out_of_order_while_writers_are_killed(quick_path: Path) -> None:
    figures = torture(quick_path, seconds=many(12), writers=2, app=False)

    assert figures["wrong"] == []
    assert sum(figures["kills"].values()) >= 2
    assert figures["operations acknowledged"] > 10
    assert figures["rows copied"] > 10
