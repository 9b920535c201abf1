"""A SessionCursor keeps one model session in step with an answer that grows and is sometimes taken back.

It compares what the session has been fed with what the answer is now, rolls back to where they part, and
feeds the rest, so that nothing is ever fed twice or left out (TRAPS 8, 9). Edge and cloud use the same one, and
its logits are adjusted by what was said before (specdec.sampling.choice), so that they are on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdec.draft import ROOT
from specdec.models.plans import Extension, Plan, Prepared, planned, settled
from specdec.models.runner import LayerObserver
from specdec.models.session import ModelSession
from specdec.models.static import MOST_IN_A_RUN, ChainRun
from specdec.options import GenerationOptions
from specdec.sampling.choice import Adjuster, AnyGrammar
from specdec.sampling.choices import Choices


class SessionCursor:
    """One model session following one answer. Answer positions count from 0 at the first token after the
    prompt.
    """

    def __init__(self, session: ModelSession, options: GenerationOptions | None = None) -> None:
        """options: what the logits are adjusted by; without them they are the model's own."""
        self._session = session
        self._options = options or GenerationOptions()
        self._adjuster: Adjuster | None = None
        self._prompt_length = 0
        self._prompt_row: Tensor | None = None
        self._fed: list[int] = []
        self._tree_offset = 0

    @property
    def fed(self) -> int:
        """How many answer tokens the session's cache holds."""
        return len(self._fed)

    @property
    def branches_left(self) -> int:
        """How many more branches the session's tree may have."""
        return self._session.branches_left

    @property
    def takes_embeddings(self) -> bool:
        """Whether the session starts from a prompt's embeddings, and not from what is handed in."""
        return self._session.takes_embeddings

    @property
    def evicted(self) -> bool:
        """Whether the cache was given back: the prompt has to be fed again before anything else."""
        return self._prompt_row is None

    def evict(self) -> None:
        """Give the cache back."""
        self._session.evict()
        self._prompt_row = None
        self._fed = []
        self._tree_offset = 0

    def expect(self, tokens: int, at_once: bool = False) -> None:
        """Prompt and answer will take no more than so many tokens. at_once: make room for all when the prompt comes."""
        self._session.most_tokens = tokens
        self._session.at_once = at_once

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt as this model expands it."""
        return self._prompt_length

    @planned
    def prefill(self, prepared: Prepared, observer: LayerObserver | None = None) -> Plan[Tensor]:
        """Feed the prompt; returns logits [vocab] of answer position 0.

        Raises ModelError for a prompt or a logit bias that the model cannot take, OptionsError for a grammar.
        """
        model = self._session.model
        encoded = prepared.encoded
        grammar: AnyGrammar | None = None
        if self._options.grammar:
            grammar = yield from settled(model.grammar_soon(self._options.grammar))
        self._adjuster = Adjuster(
            self._options,
            encoded.ids.tolist(),
            model.eos_token_ids,
            model.vocab_size,
            model.device,
            grammar,
            model.disturbance,
        )
        self._prompt_row = yield from self._session.prefill.plan(
            encoded, observer, prepared.hidden, prepared.prefix, prepared.kept
        )
        self._prompt_length = self._session.length
        self._fed = []
        self._tree_offset = 0
        rows = yield from self.rows.plan(())
        return rows[0]

    @planned
    def forced(self, answer: Sequence[int], most: int) -> Plan[list[int]]:
        """See `Adjuster.forced`."""
        assert self._adjuster is not None, "prefill first"
        return (yield from settled(self._adjuster.forced(answer, most)))

    @planned
    def choices(self, answer: Sequence[int], most: int) -> Plan[Choices]:
        """See `Adjuster.choices`; none where a tree takes more forwards than it has rows."""
        assert self._adjuster is not None, "prefill first"
        most = most if self._session.runner.sees_layers else 0
        return (yield from settled(self._adjuster.choices(answer, most)))

    @planned
    def rows(
        self, answer: Sequence[int], draft: Sequence[int] = (), observer: LayerObserver | None = None
    ) -> Plan[Tensor]:
        """Logits [len(draft) + 1, vocab] of the answer positions len(answer) .. len(answer) + len(draft).

        Feeds in one pass what the cache lacks of answer + draft. Row i is what the model says after
        answer + draft[:i].
        """
        assert self._adjuster is not None, "prefill first"
        asked = self._adjuster.ask_chain(answer, draft)
        rows = yield from self._plan_rows_of_model(answer, draft, observer)
        return self._adjuster.chain(rows, answer, draft, (yield from settled(asked)))

    def _plan_rows_of_model(
        self, answer: Sequence[int], draft: Sequence[int], observer: LayerObserver | None
    ) -> Plan[Tensor]:
        assert self._prompt_row is not None
        sequence = [*answer, *draft]
        start = self._sync(sequence, len(answer))
        wanted = len(draft) + 1
        pending = sequence[start:]
        if not pending:  # only at the very start of an answer: the prompt's own last row
            return self._prompt_row[None]
        last_only = wanted == 1
        logits: Tensor = yield self._session.extension(pending, None, last_only, observer)
        self._fed.extend(pending)
        if last_only:
            return logits
        if len(answer) == 0:
            return torch.cat([self._prompt_row[None], logits])
        return logits if logits.shape[0] == wanted else logits[-wanted:]

    @property
    def runs(self) -> bool:
        """Whether `run` may be asked: rows are not adjusted, and tokens may go in that nobody has read."""
        asked = self._adjuster is not None and self._adjuster.active
        return not asked and self._session.takes_embeddings and self._session.runner.sees_layers

    @planned
    def run(
        self,
        answer: Sequence[int],
        count: int,
        pick: Callable[[Tensor, int], Tensor],
        banned: Sequence[int] | None = None,
        chances: bool = False,
    ) -> Plan[tuple[list[int], list[float]]]:
        """The `count` tokens that follow an answer when each is picked after the one before; read once, at the end.

        pick: from logits [1, vocab] and an answer position to the id int64 [1], on the device. What is read while the
        device works would make it wait. banned: ids that `pick` never takes, where it is otherwise the session's
        Chooser; the run may then be one launch. None: it is something else. chances: the model's probability of each
        token comes with them where it is one launch; else no chances come, and `pick` sees every row.
        """
        session = self._session
        static = session.runner.static
        if static is not None and banned is not None and 1 < count <= MOST_IN_A_RUN and answer:
            start = self._sync(list(answer), len(answer))
            run = ChainRun(count, self._options, len(answer), tuple(banned), chances)
            found: Tensor = yield Extension(session, tuple(answer[start:]), run=run)
            if found.dim() == 1:
                both = found.tolist()
                ids = [int(token) for token in both[:count]]
                self._fed.extend([*answer[start:], *ids[:-1]])
                return ids, both[count:]
            self._fed.extend(answer[start:])
            row = found[-1:]
        else:
            row = yield from self._plan_rows_of_model(answer, (), None)
        picked = [pick(row, len(answer))]
        try:
            while len(picked) < count:
                row = yield Extension(session, (0,), last_only=True, device_ids=picked[-1])
                picked.append(pick(row, len(answer) + len(picked)))
            ids = torch.cat(picked).tolist()
            self._fed.extend(ids[:-1])
        finally:  # of what was broken off nobody knows the ids
            session.rollback(self._prompt_length + len(self._fed))
        return ids, []

    @planned
    def tree_rows(
        self,
        answer: Sequence[int],
        ids: Sequence[int],
        parents: Sequence[int],
        observer: LayerObserver | None = None,
    ) -> Plan[Tensor]:
        """Logits [len(ids) + 1, vocab] after the answer alone and after every node of a tree that follows it.

        parents: node indices, -1 for children of the answer's end. One pass. The tree stays in the cache:
        where a later answer goes along one of its paths, that path is not fed again.
        """
        assert self._prompt_row is not None and self._adjuster is not None, "prefill first"
        pending = list(answer[self._sync(list(answer), len(answer)) :])
        offset = len(pending)
        all_ids = [*pending, *ids]
        all_parents = [*range(-1, offset - 1), *(parent + offset for parent in parents)]
        if not all_ids:
            masks = yield from settled(self._adjuster.ask_chain(answer))
            return self._adjuster.chain(self._prompt_row[None], answer, (), masks)
        asked = self._adjuster.ask_nodes(answer, ids, parents, len(ids) + 1)
        logits: Tensor = yield self._session.extension(all_ids, all_parents, observer=observer)
        self._tree_offset = offset
        if offset == 1:
            after_answer = logits
        else:
            after_answer = logits[offset - 1 :] if pending else torch.cat([self._prompt_row[None], logits])
        return self._adjuster.nodes(after_answer, answer, ids, parents, (yield from settled(asked)))

    @planned
    def grow_tree(self, ids: Sequence[int], parents: Sequence[int]) -> Plan[Tensor]:
        """Logits [len(ids), vocab] after more nodes of the tree of the last tree_rows call, numbered on from
        it.
        """
        assert self._adjuster is not None, "prefill first"
        shifted = [parent + self._tree_offset for parent in parents]
        logits: Tensor = yield self._session.extension(ids, shifted)
        tree = self._session.tree
        asked = self._adjuster.ask_nodes(self._fed, tree.ids, tree.parents, len(ids))
        return self._adjuster.nodes(logits, self._fed, tree.ids, tree.parents, (yield from settled(asked)))

    def reroot(self, answer: Sequence[int]) -> dict[int, int] | None:
        """Move the root of the tree to the end of `answer`, which goes along one of its paths; what grew behind stays.

        Returns where the nodes that stay are now, by the numbers they had for grow_tree; None, and nothing happens,
        where the answer leaves the tree.
        """
        path = self._path_along(answer)
        if path is None or len(self._fed) + len(path) != len(answer):
            return None
        kept = self._session.tree.below(path[-1] if path else ROOT)
        moved = {node - self._tree_offset: number for number, node in enumerate(kept)}
        self._keep(path, kept)
        return moved

    def _path_along(self, sequence: Sequence[int]) -> list[int] | None:
        """The tree nodes that the sequence goes along, as far as it does; None where it left the cache before them."""
        fed = len(self._fed)
        if list(sequence[:fed]) != self._fed:
            return None
        return self._session.tree.along(sequence[fed:])

    def _settle_tree(self, sequence: Sequence[int]) -> None:
        """Keep the path of the tree that the sequence goes along, forget the rest."""
        if len(self._session.tree):
            self._keep(self._path_along(sequence) or [])

    def _keep(self, path: Sequence[int], below: Sequence[int] = ()) -> None:
        """Join a path of the tree to what is fed; `below` stays as the tree."""
        ids = self._session.tree.ids
        self._fed.extend(ids[node] for node in path)
        self._session.keep_path(path, below)
        self._tree_offset = 0

    def _sync(self, sequence: Sequence[int], answer_length: int) -> int:
        """Roll back to the common prefix, short of the row before the first wanted; returns its length."""
        self._settle_tree(sequence)
        limit = min(len(self._fed), len(sequence))
        common = limit if self._fed[:limit] == sequence[:limit] else 0
        while common < limit and self._fed[common] == sequence[common]:
            common += 1
        # The logits after the last answer token are wanted, so that token must be fed now (again, if it was
        # before).
        common = min(common, max(answer_length - 1, 0))
        if common < len(self._fed):
            self._session.rollback(self._prompt_length + common)
            del self._fed[common:]
        return common
