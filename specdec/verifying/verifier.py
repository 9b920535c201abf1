# SPDX-License-Identifier: Apache-2.0
"""The target's side of one answer: prefill, verify drafts, or decode alone. No sockets, threads or clocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdec.draft import check_history
from specdec.drafting import Draft, check_draft, select_nodes, usable_nodes
from specdec.errors import ProtocolError
from specdec.models import LoadedModel, ModelSession, Prompt
from specdec.models.local import answer_limit
from specdec.models.plans import Plan, Preparation, Prepared, planned
from specdec.models.runner import LayerObserver
from specdec.models.session import NO_LIMIT, SessionCursor
from specdec.options import GenerationOptions
from specdec.sampling import Chooser
from specdec.sampling.choices import MOST_NODES
from specdec.sampling.grammar import MAX_FORCED
from specdec.verifying.judge import Judgement, judge


def within_branches(parents: Sequence[int], nodes: Sequence[int], most: int) -> list[int]:
    """The longest prefix of these tree nodes with at most `most` branches. parents: of all nodes of the tree.

    >>> within_branches((-1, -1, 0, 0), (0, 1, 2, 3), 2)
    [0, 1, 2]
    """
    tips: set[int] = set()
    for count, node in enumerate(nodes):
        if parents[node] not in tips and len(tips) == most:
            return list(nodes[:count])
        tips = tips - {parents[node]} | {node}
    return list(nodes)


class Verifier:
    """One answer in progress on the target model. `answer` holds the verified ids, a final EOS included.

    epoch: number of verdicts that did not accept a whole draft; drafts of an earlier epoch are void.
    """

    def __init__(
        self, model: LoadedModel, options: GenerationOptions, session: ModelSession | None = None
    ) -> None:
        """session: the model session to use; None: a new one."""
        self._model = model
        self._options = options
        self._session = session or model.new_session()
        self._cursor = SessionCursor(self._session, options)
        self._chooser = Chooser(options)
        self._prompt: Prompt | None = None
        self.answer: list[int] = []
        self.limit = 0
        self.epoch = 0

    @property
    def finished(self) -> bool:
        """True once an EOS was picked or the answer has its maximum length."""
        return len(self.answer) >= self.limit or (
            bool(self.answer) and self.answer[-1] in self._model.eos_token_ids
        )

    def open(self, prompt: Prompt, history: Sequence[int] = (), observer: LayerObserver | None = None) -> int:
        """Run `prefill` and pick the next token; returns that token."""
        self.prefill(prompt, history, observer)
        return self.step(observer)

    @planned
    def prefill(
        self,
        prompt: Prompt,
        history: Sequence[int] = (),
        observer: LayerObserver | None = None,
        admit: Callable[[int], None] | None = None,
    ) -> Plan[None]:
        """Feed the prompt and take over tokens verified earlier (resume).

        Args:
            prompt: The prompt.
            history: Tokens verified earlier.
            observer: Called after each layer.
            admit: Called before anything is allocated, with the most tokens that the cache may hold; an exception ends
                the plan. If given, the cache is allocated for all of them at once.

        Raises:
            ModelError: The prompt cannot be used.
            ProtocolError: The history is impossible.
        """
        prepared: Prepared = yield Preparation(self._model, prompt, self._session.takes_embeddings)
        encoded = prepared.encoded
        self._prompt = prompt
        self.limit = answer_limit(self._options, self._model.context_limit, encoded.ids.shape[0])
        check_history(history, self.limit, self._model.eos_token_ids)
        check_draft(Draft(0, tuple(history)), self._model.vocab_size)
        most = encoded.ids.shape[0] + self.limit
        if admit is not None:
            admit(most)
        self._session.most_tokens, self._session.at_once = most, admit is not None
        yield from self._cursor.prefill.plan(prepared, observer)
        self.answer = list(history)

    def evict(self) -> bool:
        """Free the cache; the next request recomputes it. Returns False if that is impossible (layer split)."""
        if not self._session.takes_embeddings or self._prompt is None:
            return False
        self._cursor.evict()
        return True

    def _plan_return(self) -> Plan[None]:
        """After an eviction, feed the prompt again; the cursor feeds the answer with the next request."""
        if self._cursor.evicted and self._prompt is not None:
            prepared: Prepared = yield Preparation(self._model, self._prompt)
            yield from self._cursor.prefill.plan(prepared)

    @planned
    def step(self, observer: LayerObserver | None = None) -> Plan[int]:
        """Decode one token alone, append it and any forced tokens after it to the answer, and return it."""
        yield from self._plan_return()
        row = yield from self._cursor.rows.plan(self.answer, observer=observer)
        token = self._pick(row[0], len(self.answer))
        self.answer.append(token)
        yield from self._plan_jump()
        return token

    @planned
    def choices(self, price_s: Callable[[int], float | None]) -> Plan[Draft]:
        """A draft of the few continuations that a grammar allows; empty without a grammar or if it would not pay.
        price_s: seconds of a forward pass over n rows; None if unknown.
        """
        answer = self.answer
        if not self._options.grammar or self.finished or self._cursor.evicted:
            return Draft(len(answer), ())
        found = yield from self._cursor.choices.plan(answer, MOST_NODES)
        nodes = found.worth(price_s)
        return Draft(len(answer), tuple(found.tree.ids[:nodes]), tuple(found.tree.parents[:nodes]))

    def _plan_jump(self) -> Plan[None]:
        """Append the tokens that a grammar forces after the answer; they need no forward pass."""
        if self._options.grammar and not self.finished:
            self.answer += yield from self._cursor.forced.plan(self.answer, self.limit - len(self.answer))

    def forced_after(self, length: int) -> list[int]:
        """The tokens that a grammar forced after the answer's first `length` tokens; empty without a grammar."""
        return self.answer[length : length + MAX_FORCED] if self._options.grammar else []

    @property
    def unfed(self) -> int:
        """How many tokens of the answer were not fed to the model."""
        return len(self.answer) - self._cursor.fed

    def _pick(self, row: Tensor, position: int) -> int:
        """The token at an answer position, from its logits [vocab]."""
        return self._chooser.choose(row[None], position)[0]

    @planned
    def verify(self, draft: Draft, observer: LayerObserver | None = None) -> Plan[Judgement]:
        """Judge a draft in one forward pass, and extend the answer by the accepted tokens and the target's next token.

        A draft may start before the end of the verified answer, if it was sent before the edge knew that end. The known
        tokens then count as the target's picks. Raises ProtocolError for a draft that does not fit.
        """
        check_draft(draft, self._model.vocab_size)
        known = self._known_of(draft)
        if draft.parents is None and known and draft.ids[:1] != (known[0],):
            self.epoch += bool(draft.ids)
            return Judgement((), known[0])  # refuted without a forward pass
        nodes = self.usable(draft)
        usable = select_nodes(draft, nodes)
        prefix = self.answer[: draft.base]
        picks = yield from self._plan_picks(prefix, usable, known, observer)
        judgement = judge(usable, picks, self._model.eos_token_ids)
        verified = [usable.ids[node] for node in judgement.path] + [judgement.token]
        if len(verified) > len(known):
            self.answer = prefix + verified
            yield from self._plan_jump()
        if self._session.most_branches < NO_LIMIT:  # free branches for other sessions
            self._cursor.settle(self.answer)
        path = tuple(nodes[node] for node in judgement.path)
        result = Judgement(path, judgement.token)
        self.epoch += result.last < len(draft.ids)
        return result

    def _known_of(self, draft: Draft) -> list[int]:
        """The verified tokens after the draft's base. Raises ProtocolError for a draft that does not fit."""
        known = self.answer[draft.base :]
        if draft.base > len(self.answer):
            raise ProtocolError(
                f"a draft starts at {draft.base} but only {len(self.answer)} tokens are verified"
            )
        if self.finished and not known:
            raise ProtocolError("a draft came after the end of the answer")
        return known

    def usable(self, draft: Draft) -> list[int]:
        """The nodes of a valid draft to feed to the target: those that could become part of the answer."""
        nodes = usable_nodes(draft, self.limit - draft.base - 1, self._model.never_drafted)
        if draft.parents is not None:  # branches take more room in the cache than a single path
            nodes = nodes[: max(0, self._model.context_limit - self._cursor.prompt_length - draft.base - 1)]
            if self._session.most_branches < NO_LIMIT:
                nodes = within_branches(draft.parents, nodes, self._session.most_branches)
        return nodes

    def _plan_picks(
        self, prefix: list[int], draft: Draft, known: Sequence[int], observer: LayerObserver | None
    ) -> Plan[list[int]]:
        """The target's picks after the prefix and after every node; at `known` positions the known tokens."""
        yield from self._plan_return()
        if draft.parents is None:
            rows = yield from self._cursor.rows.plan(prefix, draft.ids, observer)
            picks = self._chooser.choose(rows, len(prefix))
            picks[: len(known)] = known[: len(picks)]
            return picks
        rows = yield from self._cursor.tree_rows.plan(prefix, draft.ids, draft.parents, observer)
        offsets = [0, *(depth + 1 for depth in draft.depths())]
        positions = torch.tensor(offsets, device=rows.device) + len(prefix)
        picks = self._chooser.choose_at(rows, positions)
        return [
            known[offset] if offset < len(known) else pick
            for offset, pick in zip(offsets, picks, strict=True)
        ]
