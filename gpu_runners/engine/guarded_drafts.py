"""The engine's way to its drafts: what fails in them ends a sequence's drafts, never its answer; and how much of a
draft is verified."""

import logging
from collections.abc import Sequence

from gpu_runners.engine.sequences import TokenSequence
from gpu_runners.speculation.batch import BatchDrafter

log = logging.getLogger("kolm.generation")

MOST_DRAFTED = 1024  # of a step: each is a row of logits, and a thousand of 150,000 float32 are 600 MB


class GuardedDrafts:
    """Drafts as the scheduler asks for them. What breaks in them ends a sequence's drafts, not its answer."""

    def __init__(self, *, vocab_size: int) -> None:
        self.drafts: BatchDrafter | None = None  # set before the first sequence that has a drafter enters
        self._vocab_size = vocab_size

    def ask(self, sequences: Sequence[TokenSequence]) -> int:
        """Give those of `sequences` that decode and may have one a draft; how many tokens that are."""
        asked = [sequence for sequence in sequences if sequence.drafter is not None and not sequence.reading]
        if not asked or self.drafts is None:
            return 0
        share = max(1, MOST_DRAFTED // len(asked))
        try:
            for sequence, ids in zip(asked, self.drafts.propose(asked), strict=True):
                sequence.draft = fit_draft(ids, sequence, share=share, vocab_size=self._vocab_size) if ids else []
        except Exception:
            log.exception("drafting failed: %d requests go on without", len(asked))
            self.end(asked)
        return sum(len(sequence.draft) for sequence in asked)

    def observe_accepted(self, sequence: TokenSequence, kept: Sequence[int]) -> None:
        if sequence.drafter is None or self.drafts is None:
            return
        try:
            self.drafts.observe_accepted(sequence, kept)
        except Exception:
            log.exception("drafting failed: a request goes on without")
            self.end([sequence])
        sequence.draft = []

    def note_step(self, n_rows: int, n_drafted: int, seconds: float) -> None:
        if self.drafts is None:
            return
        try:
            self.drafts.note_step(n_rows, n_drafted, seconds)
        except Exception:
            log.exception("drafting failed: what a step took was not noted")

    def end(self, sequences: Sequence[TokenSequence]) -> None:
        """No more drafts for `sequences`, which go on."""
        for sequence in sequences:
            sequence.draft = []
            self.close(sequence)

    def close(self, sequence: TokenSequence) -> None:
        if sequence.drafter is None or self.drafts is None:
            return
        try:
            sequence.by_source = sequence.drafter.counts
            self.drafts.close(sequence)
        except Exception:
            log.exception("drafting failed: the drafts of a request were not closed")
        sequence.drafter = None


def fit_draft(ids: Sequence[int], sequence: TokenSequence, *, share: int, vocab_size: int) -> list[int]:
    """Cut a draft to what can come true: not past the end of the answer, the sequence's limit or a token that the base
    does not have, and one place short of the limit, for the token that follows."""
    kept: list[int] = []
    for token in ids[: max(0, min(share, sequence.limit - len(sequence.tokens) - 1))]:
        if not 0 <= token < vocab_size:
            break
        kept.append(token)
        if token in sequence.eos_ids:
            break
    return kept
