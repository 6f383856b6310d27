"""A pack as a source of tokens for one answer."""

from collections.abc import Sequence

from backend.domain.recipes.lookup import PackIndex
from gpu_runners.models.protocol import DraftKind
from gpu_runners.speculation.feedback_log import PackLog


class PackSource:
    """`key` is the recipe's place in the pack, of a copy recipe behind all others. `prompt`: what is answered, of which
    copies are made. Places that no recipe knows are told to the log."""

    kind = DraftKind.PACK

    def __init__(self, index: PackIndex, log: PackLog | None = None, prompt: Sequence[int] = ()) -> None:
        self.key = -1
        self._cursor = index.cursor(prompt)
        self._log = log

    def advance(self, token: int) -> None:
        self._cursor.advance(token)

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        cursor = self._cursor
        if ahead:
            cursor = cursor.copy()
            for token in ahead:
                cursor.advance(token)
        run = cursor.propose(most)
        self.key = cursor.proposed
        if not run and not ahead and self._log is not None and self._log.wants_missed():
            self._log.missed(cursor.shape)
        return run
