"""Services under a real kill -9: each request is answered once, and its effect is there once."""

import subprocess
import sys
from collections import Counter, defaultdict

import pytest

from tests.crash.ledger import many
from tests.crash.service_torture import declare

KEYS = 5


@pytest.mark.timeout(3600)
def test_each_request_is_answered_once_in_the_order_of_its_key(quick_path):
    home, until = quick_path / "home", quick_path / "done"
    app = declare(home)
    service, asked = app.get_service("count"), many(40)
    command = [sys.executable, "-m", "tests.crash.service_torture", str(home), str(until), "7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as torture:
        ids = [
            service.post(
                {"item": f"i{number % KEYS}", "deadly": number % 20 == 7}, timeout="1 hour", request_id=f"r-{number}"
            )
            for number in range(asked)
        ]
        found = [service.wait(id, "20 minutes") for id in ids]
        until.touch()
        kills = int(torture.communicate()[0])

    # Requests of a key were answered in order, each from the state that the one before it had left.
    assert [reply.value()["asked"] for reply in found] == [number // KEYS + 1 for number in range(asked)]
    assert kills >= 1
    assert len(list(quick_path.glob("died-*"))) == len(range(7, asked, 20))
    counts = {row["item"]: row["asked"] for row in app.get_table("counts").to_arrow().to_pylist()}
    assert counts == {f"i{key}": asked // KEYS for key in range(KEYS)}
    rows = [row for batch in app.get_topic("count_replies").read() for row in batch.to_pylist()]
    assert Counter(row["request_id"] for row in rows) == dict.fromkeys(ids, 1)
    writes = defaultdict(list)
    for row in app.get_topic("counts").rows():
        writes[row["item"]].append(row["asked"])
    assert set(map(tuple, writes.values())) == {tuple(range(1, asked // KEYS + 1))}
    again = [service.ask({"item": "i0", "deadly": False}, request_id="r-0") for _ in range(2)]
    assert again == [{"asked": 1}] * 2
    app.close()
