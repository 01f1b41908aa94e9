"""Verifying what SQL leaves open: another choice is no difference, another row is one."""

from __future__ import annotations

from headwater.views.compiler.algebra.nondeterminism import Nondeterminism
from headwater.views.lifecycle.verification import without_open


def test_a_list_in_another_order_is_the_same_list() -> None:
    missing, surplus = [{"k": 1, "xs": [1, 2.5, None]}], [{"k": 1, "xs": [None, 2.5 + 1e-15, 1]}]

    assert without_open(missing, surplus, {"xs": Nondeterminism.BAG}) == ([], [], 0)


def test_a_list_of_other_values_is_a_difference() -> None:
    missing, surplus = [{"k": 1, "xs": [1, 2]}], [{"k": 1, "xs": [1, 1]}]

    assert without_open(missing, surplus, {"xs": Nondeterminism.BAG}) == (missing, surplus, 0)


def test_another_choice_is_counted_and_a_missing_one_is_a_difference() -> None:
    missing = [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]
    surplus = [{"k": 1, "v": "c"}, {"k": 2, "v": None}]

    assert without_open(missing, surplus, {"v": Nondeterminism.VALUE}) == ([missing[1]], [surplus[1]], 1)


def test_a_choice_excuses_nothing_else() -> None:
    missing, surplus = [{"k": 1, "n": 2, "v": "a"}], [{"k": 1, "n": 3, "v": "a"}]

    assert without_open(missing, surplus, {"v": Nondeterminism.VALUE}) == (missing, surplus, 0)
