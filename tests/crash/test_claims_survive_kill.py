"""Claims under a real kill -9: sixteen processes want one name at one instant, and some of them die.

1 000 rounds: HEADWATER_THOROUGH=50.
"""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from headwater.log.home import Log
from tests.crash.claim_torture import WON
from tests.crash.ledger import many

TORTURE = Path(__file__).with_name("claim_torture.py")
CLAIMANTS = 16


@pytest.mark.timeout(7200)
def test_of_sixteen_claimants_at_one_instant_one_wins_and_the_others_are_told_who(quick_path):
    rounds, home = many(20), quick_path / "home"
    command = [sys.executable, str(TORTURE), str(home), str(rounds), str(CLAIMANTS), "7"]

    ran = subprocess.run(command, capture_output=True, text=True, timeout=7200)

    assert ran.returncode == 0, ran.stderr[-2000:]
    said = json.loads(ran.stdout)
    assert set(said["codes"]) == {0}
    assert said["kills"] >= rounds // 5
    for told in said["told"]:
        winners = [number for number, answer in enumerate(told) if answer == WON]
        assert len(winners) == 1
        assert {answer - 2 for answer in told if answer != WON} == {winners[0]}
    # And so says the log itself: one event of each value, one row of each request.
    with Log(home) as log:
        rows = list(log.get_topic("username").rows())
    claimed = defaultdict(list)
    for row in rows:
        if row["type"] == "claimed":
            claimed[row["stream"]].append(row["claimed"]["owner"])
    winners = [[f"claimant-{told.index(WON)}"] for told in said["told"]]
    assert [claimed[f"name-{turn}"] for turn in range(rounds)] == winners
    assert set(Counter((row["stream"], row["request_id"]) for row in rows).values()) == {1}
    assert len(rows) == rounds * CLAIMANTS
