"""The token tree: what grows where, what is found again, and what stays when the root moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.drafting import ROOT, TokenTree

#           0   1     2   3  4  5
IDS = [5, 6, 7, 8, 7, 9]
PARENTS = [ROOT, ROOT, 0, 0, 1, 2]


def tree() -> TokenTree:
    """ROOT -> 5 -> 7 -> 9; 5 -> 8; ROOT -> 6 -> 7."""
    return TokenTree(IDS, PARENTS)


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    grown = TokenTree()
    for token in draw(st.lists(st.integers(0, 3), max_size=12)):
        grown.append(token, draw(st.integers(ROOT, len(grown) - 1)))
    return grown


def test_depths_and_paths_follow_the_parents() -> None:
    assert tree().depths == [0, 0, 1, 1, 1, 2]
    assert tree().path(5) == [0, 2, 5] and tree().path(ROOT) == []


def test_tokens_lead_as_far_as_the_tree_goes() -> None:
    assert tree().along([5, 7, 9, 4]) == [0, 2, 5]
    assert tree().along([6, 8]) == [1] and tree().along([9]) == [] and tree().along([]) == []


def test_of_two_equal_nodes_the_first_is_found_whenever_it_is_looked_for() -> None:
    grown = TokenTree([5, 5], [ROOT, ROOT])
    assert grown.child(ROOT, 5) == 0
    grown.append(5, ROOT)
    assert grown.child(ROOT, 5) == 0 and grown.child(2, 5) is None
    grown.append(5, 2)
    assert grown.child(2, 5) == 3


def test_what_is_below_a_node_becomes_a_tree_of_its_own() -> None:
    assert tree().below(0) == [2, 3, 5] and tree().below(ROOT) == [0, 1, 2, 3, 4, 5]
    below = tree().select([2, 3, 5], root=0)
    assert (below.ids, below.parents, below.depths) == ([7, 8, 9], [ROOT, ROOT, 0], [0, 0, 1])
    with pytest.raises(KeyError):
        tree().select([5])


def test_the_best_are_kept_with_their_parents_and_no_deeper_than_there_is_room() -> None:
    scores = [-0.1, -3.0, -0.2, -0.9, -3.1, -0.3]
    assert tree().prune(scores, 4, 9) == [0, 2, 3, 5]
    assert tree().prune(scores, 4, 2) == [0, 1, 2, 3] and tree().prune(scores, 4, 0) == []


@pytest.mark.slow
@given(trees(), st.data())
def test_moving_the_root_keeps_every_path_behind_it(grown: TokenTree, data: st.DataObject) -> None:
    top = data.draw(st.integers(ROOT, len(grown) - 1))
    kept = grown.below(top)
    moved = grown.select(kept, top)
    for number, node in enumerate(kept):
        behind = [grown.ids[one] for one in grown.path(node)[len(grown.path(top)) :]]
        assert [moved.ids[one] for one in moved.path(number)] == behind
        assert moved.depths[number] == len(behind) - 1
