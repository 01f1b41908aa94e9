import pytest

from headwater.testing import ManualClock


def test_both_clocks_move_together_and_only_by_hand():
    clock = ManualClock(now_us=0)

    clock.advance(1.5)
    clock.sleep(0.5)

    assert (clock.now_us(), clock.monotonic()) == (2_000_000, 2.0)


def test_a_clock_does_not_go_back():
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock().advance(-0.1)
