"""The savings of drafts on answers that are known, without an engine: the counters of greedy verification, exactly."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from backend.domain.recipes.lookup import CopyingCursor
from backend.domain.recipes.mining.conditional_runs import greedy_draft


class Proposer(Protocol):
    """One answer's drafts. `propose` gives at most `most` ids; `advance` takes each token that became part of it."""

    def propose(self, most: int) -> Sequence[int]: ...

    def advance(self, token: int) -> None: ...


class GreedyDraft:
    """A cursor that goes on where its run ends, as an engine asks it to."""

    def __init__(self, cursor: CopyingCursor, end_ids: Collection[int] = ()) -> None:
        self._cursor, self._end_ids = cursor, end_ids

    def advance(self, token: int) -> None:
        self._cursor.advance(token)

    def propose(self, most: int) -> Sequence[int]:
        return greedy_draft(self._cursor, most, self._end_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The counts of all answers: tokens, forward passes, drafted and accepted tokens, forward passes with a draft."""

    n_tokens: int
    n_steps: int
    n_drafted: int
    n_accepted: int
    n_drafts: int


def replay(
    answers: Sequence[Sequence[int]], proposer: Callable[[int], Proposer], *, max_draft: int, limit: int | None = None
) -> Replayed:
    """`proposer(i)` drafts for answer i (its end token included). The first token comes from the step that read the
    prompt, as in our engine. `limit`: an answer has at most so many tokens, and no draft reaches its last one."""
    n_tokens = n_steps = n_drafted = n_accepted = n_drafts = 0
    for i, answer in enumerate(answers):
        tokens = list(answer[:limit])
        drafts = proposer(i)
        at = 0  # tokens that have come
        while at < len(tokens):
            room = max_draft if limit is None else min(max_draft, limit - at - 1)
            draft = list(drafts.propose(room))[:room] if at and room > 0 else []
            n = _count_accepted(draft, tokens[at:])
            end = min(at + n + 1, len(tokens))
            for token in tokens[at:end]:
                drafts.advance(token)
            at = end
            n_steps += 1
            n_drafted += len(draft)
            n_accepted += n
            n_drafts += bool(draft)
        n_tokens += len(tokens)
    return Replayed(n_tokens=n_tokens, n_steps=n_steps, n_drafted=n_drafted, n_accepted=n_accepted, n_drafts=n_drafts)


def _count_accepted(draft: Sequence[int], coming: Sequence[int]) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(draft, coming, strict=False)) if a != b), min(len(draft), len(coming))
    )
