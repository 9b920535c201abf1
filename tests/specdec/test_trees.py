"""Token trees: growing, pruning, and answers that stay the target's whatever the tree is."""

from __future__ import annotations

import pytest
import torch

from specdec.draft import TokenTree, TreeSize
from specdec.drafting import ROOT, Draft, DraftModel, TreeDrafter, check_draft
from specdec.drafting.tree_drafter import TreeGrowth, prune
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import OptionsError
from specdec.methods import get_method
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.models.plans import Prepared
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from specdec.verifying import Verifier
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair, patiently_connected
from tests.specdec.library import assert_close, library_logits


def prompt_for(model: LoadedModel) -> Prompt:
    return chat_prompt(model, "a tree", images=[tiny.picture(1)] if model.is_multimodal else [])


class TestGrowing:
    """The pure part."""

    def toy(self, size: TreeSize, stop: frozenset[int] = frozenset()) -> tuple[TreeGrowth, int]:
        """A language in which token t is followed by t+1 with 0.6, t+2 with 0.3, t+3 with 0.1 (mod 10)."""
        calls = 0

        def after(token: int) -> torch.Tensor:
            row = torch.full((10,), float("-inf"))
            for step, chance in ((1, 0.6), (2, 0.3), (3, 0.1)):
                row[(token + step) % 10] = torch.log(torch.tensor(chance))
            return row

        growth = TreeGrowth(stop)
        growth.plant(after(0), size.beam)
        while growth.levels < size.depth:
            frontier = growth.frontier(size.beam)
            if not frontier:
                break
            rows = torch.stack([after(growth.tree.ids[index]) for index in frontier])
            growth.expand(frontier, 10 * calls, rows, size.beam)
            calls += 1
        return growth, calls

    def test_costs_one_forward_a_level_and_keeps_the_best(self) -> None:
        size = TreeSize(budget=12, depth=4)
        growth, calls = self.toy(size)
        assert calls == size.depth - 1
        draft, guess = prune(5, growth.tree, growth.scores, size.budget, 99)
        assert guess in path_ids(draft)
        check_draft(draft, 10)
        assert len(draft.ids) == 12 and max(draft.depths()) == 3
        kept = sorted(growth.scores, reverse=True)[:12]
        assert sum(kept) == pytest.approx(sum(score_of(draft)), abs=1e-4)

    def test_likeliest_chain_is_always_in_it(self) -> None:
        growth, _ = self.toy(TreeSize(6, 6))
        draft, _ = prune(0, growth.tree, growth.scores, 6, 99)
        assert path_ids(draft)[-1:] == [(1, 2, 3, 4, 5, 6)] or (1, 2, 3) in path_ids(draft)

    def test_nothing_grows_behind_the_end_of_an_answer(self) -> None:
        growth, _ = self.toy(TreeSize(12, 4), stop=frozenset({1, 2, 3}))
        assert set(growth.tree.depths) == {0}

    def test_what_grew_below_a_child_is_the_tree_of_that_child(self) -> None:
        growth, _ = self.toy(TreeSize(12, 4))
        below = growth.descend(1)
        assert below is not None and below.levels == 3 and below.root_fed == 0
        check_draft(prune(6, below.tree, below.scores, 99, 99)[0], 10)
        assert {below.tree.ids[node] for node in roots(below.tree)} == {2, 3, 4}
        child = below.tree.child(ROOT, 2)
        assert child is not None and below.tree.depths[child] == 0
        assert below.scores[child] == pytest.approx(float(torch.log(torch.tensor(0.6))))
        assert growth.descend(9) is None and growth.descend(3) is not None
        deepest = below.descend(2)
        assert deepest is not None and (after := deepest.descend(3)) is not None
        assert after.levels == 1 and after.descend(4) is None  # never went through the model

    def test_no_path_is_longer_than_the_room(self) -> None:
        growth, _ = self.toy(TreeSize(12, 4))
        draft, guess = prune(0, growth.tree, growth.scores, 12, 2)
        assert max(draft.depths()) == 1 and len(guess) <= 2
        assert prune(0, growth.tree, growth.scores, 12, 0) == (Draft(0, (), ()), ())

    def test_parents_come_first_even_where_scores_tie(self) -> None:
        """As after an unsorted top-k."""
        tree = TokenTree([1, 2, 3], [ROOT, 0, 1])
        check_draft(prune(0, tree, [-1.0, -1.0, -1.0], 3, 9)[0], 10)
        check_draft(prune(0, tree, [-1.0, -1.0, -1.0], 2, 9)[0], 10)


def roots(tree: TokenTree) -> list[int]:
    """The children of the root."""
    return [node for node, parent in enumerate(tree.parents) if parent == ROOT]


def score_of(draft: Draft) -> list[float]:
    """Path scores of a draft in the toy language."""
    chances = {1: 0.6, 2: 0.3, 3: 0.1}
    scores: list[float] = []
    assert draft.parents is not None
    for token, parent in zip(draft.ids, draft.parents, strict=True):
        before = 0 if parent == ROOT else draft.ids[parent]
        own = float(torch.log(torch.tensor(chances[(token - before) % 10])))
        scores.append(own + (0.0 if parent == ROOT else scores[parent]))
    return scores


def path_ids(draft: Draft) -> list[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = []
    assert draft.parents is not None
    for token, parent in zip(draft.ids, draft.parents, strict=True):
        paths.append((*(() if parent == ROOT else paths[parent]), token))
    return paths


class TestFollowing:
    def test_rows_of_a_tree_and_what_is_kept_of_it_equal_the_librarys(self, pair: Pair) -> None:
        model = pair.target
        prompt = prompt_for(model)
        session = model.new_session()
        cursor = SessionCursor(session)
        cursor.prefill(Prepared(model.encode(prompt)))
        for answer in ([], [4, 5, 6]):
            rows = cursor.tree_rows(answer, [10, 11, 12], [-1, -1, 1])
            for row, path in zip(rows, ([], [10], [11], [11, 12]), strict=True):
                assert_close(row[None], library_logits(model, prompt, [*answer, *path])[-1:])
        grown = cursor.grow_tree([13], [2])
        assert_close(grown, library_logits(model, prompt, [4, 5, 6, 11, 12, 13])[-1:])
        before = session.length
        assert_close(
            cursor.rows([4, 5, 6, 11, 12, 13, 20]),
            library_logits(model, prompt, [4, 5, 6, 11, 12, 13, 20])[-1:],
        )
        assert cursor.fed == 7 and session.length == before + 7

    def test_a_path_of_the_tree_is_not_fed_again(self, text_pair: Pair) -> None:
        model = text_pair.target
        session = model.new_session()
        cursor = SessionCursor(session)
        cursor.prefill(Prepared(model.encode(prompt_for(model))))
        cursor.tree_rows([1], [10, 11, 12], [-1, -1, 1])
        fed: list[int] = []
        original = session.extension
        session.extension = lambda ids, *settings: (fed.extend(ids), original(ids, *settings))[1]  # type: ignore
        cursor.rows([1, 11, 12, 30])
        assert fed == [30]


GREEDY, SAMPLED = GenerationOptions(30), GenerationOptions(30, temperature=0.9, seed=2, top_p=0.95)


class TestAnswers:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("pair", "size", "options"),
        [
            ("text", "1x1", GREEDY),
            ("vision", "8x3", GREEDY),
            ("text", "32x6", GREEDY),
            ("text", "8x3", SAMPLED),
            ("vision", "32x6", SAMPLED),
            ("vision", "5x5", SAMPLED),
        ],
        indirect=["pair"],
    )
    def test_any_tree_gives_the_targets_answer(
        self, pair: Pair, servers: dict[str, str], size: str, options: GenerationOptions
    ) -> None:
        prompt = prompt_for(pair.target)
        with patiently_connected(servers[pair.target.path]) as link:
            decoder = EdgeDecoder(link, pair.draft, f"sd+tree:{size}")
            assert [t for chunk in decoder.generate(prompt, options) for t in chunk] == generate_local(
                pair.target, prompt, options
            )

    @pytest.mark.slow
    def test_a_tree_accepts_more_than_a_chain_of_its_depth(
        self, text_pair: Pair, servers: dict[str, str]
    ) -> None:
        taus = {}
        with patiently_connected(servers[text_pair.target.path]) as link:
            for method in ("sd", "sd+tree:24x4"):
                gained = rounds = 0
                for text in ("one", "two", "three", "four", "five", "six"):
                    decoder = EdgeDecoder(link, text_pair.draft, method, gamma=4)
                    list(
                        decoder.generate(
                            chat_prompt(text_pair.target, text), GenerationOptions(60, 1.0, seed=1)
                        )
                    )
                    gained += sum(one.accepted + 1 for one in decoder.stats.rounds)
                    rounds += len(decoder.stats.rounds)
                taus[method] = gained / rounds
        assert taus["sd+tree:24x4"] > taus["sd"] + 0.1

    def test_near_the_end_of_the_context_branches_give_way(
        self, text_pair: Pair, servers: dict[str, str]
    ) -> None:
        model = text_pair.target
        prompt = Prompt(tuple((7 * i) % 250 for i in range(model.context_limit - 12)))
        expected = generate_local(model, prompt, GenerationOptions(100))
        with patiently_connected(servers[model.path]) as link:
            decoder = EdgeDecoder(link, text_pair.draft, "sd+tree:32x6")
            assert [t for c in decoder.generate(prompt, GenerationOptions(100)) for t in c] == expected

    def test_draft_from_before_the_first_token_is_judged_by_what_is_known(self, text_pair: Pair) -> None:
        prompt = prompt_for(text_pair.target)
        right = generate_local(text_pair.target, prompt, GenerationOptions(20))
        verifier = Verifier(text_pair.target, GenerationOptions(20))
        verifier.open(prompt)
        draft = Draft(0, (255, right[0], right[1], 254), (-1, -1, 1, 1))
        judgement = verifier.verify(draft)
        assert judgement.path == (1, 2) and judgement.token == right[2]

    def test_drafter_makes_trees_that_fit(self, pair: Pair) -> None:
        model = pair.draft
        drafter = TreeDrafter(DraftModel(model, GenerationOptions()), 16)
        drafter.prefill(prompt_for(model))
        for room in (0, 1, 3, 10):
            while drafter.step([5, 6], min(4, room) or 1):
                pass
            draft = drafter.take([5, 6], 4, room).draft
            check_draft(draft, model.vocab_size)
            assert len(draft.ids) <= 16
            assert not draft.ids or max(draft.depths()) < room
            assert not set(draft.ids) & model.never_drafted


class TestGrowingOn:
    """Proactive drafting: what the tree became while the verdict was out."""

    def test_what_grew_on_the_verified_path_is_kept_and_the_rest_forgotten(self, text_pair: Pair) -> None:
        model = text_pair.draft
        drafter = TreeDrafter(DraftModel(model, GenerationOptions()), 12)
        drafter.prefill(prompt_for(model))
        answer = [4]
        for size in (3, 3):
            while drafter.step(answer, size):
                pass
            guess = [*answer, *drafter.take(answer, size, 99).guess]
            while drafter.step(guess, 4):  # the verdict is out
                pass
            grown = drafter._growth
            assert grown is not None
            first = [grown.tree.ids[node] for node in roots(grown.tree)]
            answer = [*guess, next(token for token in first if grown.descend(token) is not None)]
            passes = model.runner.passes
            assert drafter.drafted(answer) > 0 and model.runner.passes == passes
            kept = drafter.take(answer, 3, 99).draft
            fresh = TreeDrafter(DraftModel(model, GenerationOptions()), 12)
            fresh.prefill(prompt_for(model))
            while fresh.step(answer, 3):
                pass
            likeliest = fresh.take(answer, 3, 99).draft.ids[0]
            assert kept.base == len(answer) and kept.ids[0] == likeliest
            assert drafter.drafted([*answer[:-1], 255]) == 0
            check_draft(kept, model.vocab_size)


@pytest.mark.parametrize(
    "name", ["sd+tree", "sd+tree:4", "sd+tree:4x8", "sd+tree:-1x1", "ar+tree:8x2", "sd+x:1", "no"]
)
def test_bad_method_names_are_refused(name: str) -> None:
    with pytest.raises(OptionsError):
        get_method(name)
