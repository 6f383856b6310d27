"""The engine's way to its drafts: what fails in them ends a row's drafts, never its answer; and how much of a draft is
verified."""

import logging
from collections.abc import Sequence

from gpu_runners.engine.sequences import Row
from gpu_runners.speculation.batch import BatchDrafter

log = logging.getLogger("kolm.generation")

MOST_DRAFTED = 1024  # of a step: each is a row of logits, and a thousand of 150,000 float32 are 600 MB


class GuardedDrafts:
    """Drafts as the scheduler asks for them. What breaks in them ends a row's drafts, not its answer."""

    def __init__(self, *, vocab_size: int) -> None:
        self.drafts: BatchDrafter | None = None  # set before the first row that has a drafter enters
        self._vocab_size = vocab_size

    def ask(self, rows: Sequence[Row]) -> int:
        """Give those of `rows` that decode and may have one a draft; how many tokens that are."""
        asked = [row for row in rows if row.drafter is not None and not row.reading]
        if not asked or self.drafts is None:
            return 0
        share = max(1, MOST_DRAFTED // len(asked))
        try:
            for row, ids in zip(asked, self.drafts.propose(asked), strict=True):
                row.draft = fitted(ids, row, share=share, vocab_size=self._vocab_size) if ids else []
        except Exception:
            log.exception("drafting failed: %d requests go on without", len(asked))
            self.end(asked)
        return sum(len(row.draft) for row in asked)

    def settle(self, row: Row, kept: Sequence[int]) -> None:
        if row.drafter is None or self.drafts is None:
            return
        try:
            self.drafts.settle(row, kept)
        except Exception:
            log.exception("drafting failed: a request goes on without")
            self.end([row])
        row.draft = []

    def note_step(self, n_rows: int, n_drafted: int, seconds: float) -> None:
        if self.drafts is None:
            return
        try:
            self.drafts.note_step(n_rows, n_drafted, seconds)
        except Exception:
            log.exception("drafting failed: what a step took was not noted")

    def end(self, rows: Sequence[Row]) -> None:
        """No more drafts for `rows`, which go on."""
        for row in rows:
            row.draft = []
            self.close(row)

    def close(self, row: Row) -> None:
        if row.drafter is None or self.drafts is None:
            return
        try:
            row.by_source = row.drafter.counts
            self.drafts.close(row)
        except Exception:
            log.exception("drafting failed: the drafts of a request were not closed")
        row.drafter = None


def fitted(ids: Sequence[int], row: Row, *, share: int, vocab_size: int) -> list[int]:
    """As much of a draft as can come true: not past the end of the answer, the row's limit or a token that the base
    does not have, and one place short of the limit, for the token that follows."""
    kept: list[int] = []
    for token in ids[: max(0, min(share, row.limit - len(row.tokens) - 1))]:
        if not 0 <= token < vocab_size:
            break
        kept.append(token)
        if token in row.eos_ids:
            break
    return kept
