import pytest

from headwater.log.home import Log
from headwater.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(tmp_path, clock):
    with Log(tmp_path / "home", clock=clock) as log:
        yield log
