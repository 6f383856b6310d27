"""Prompt look-up: what followed the same tokens in the prompt, or in the answer so far (Saxena, 2023).

The last two tokens are looked up in a table of all earlier pairs; of the places found, the one that agrees with most of
what is written wins, the latest between equals. The table grows with the answer.
"""

from collections.abc import Sequence

from gpu_runners.models.protocol import DraftKind

MAX_MATCH = 12  # agreeing tokens that are counted
MAX_PLACES = 8  # of one pair, the latest
_LAST = 4_096  # tokens of a prompt's end that are looked up


class PromptSource:
    """`key` is how many tokens agreed: a long agreement is worth more than a short one."""

    kind = DraftKind.PROMPT

    def __init__(self, prompt: Sequence[int]) -> None:
        self.key = 0
        self._tokens: list[int] = []
        self._places: dict[tuple[int, int], list[int]] = {}  # of what follows a pair
        self._prompt: Sequence[int] | None = prompt[-_LAST:]

    def advance(self, token: int) -> None:
        tokens = self._tokens
        tokens.append(token)
        if self._prompt is None:
            self._note(len(tokens) - 1)

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        if self._prompt is not None:
            self._read(self._prompt)
        tokens = self._tokens
        tail = [*tokens[-MAX_MATCH:], *ahead][-MAX_MATCH:]
        if len(tail) < 2:
            return ()
        best, best_at = 0, -1
        for at in reversed(self._places.get((tail[-2], tail[-1]), ())):
            n = self._agreeing(tail, at)
            if n > best and at < len(tokens):
                best, best_at = n, at
        self.key = best
        return tokens[best_at : best_at + most] if best else ()

    def _agreeing(self, tail: Sequence[int], at: int) -> int:
        """How many tokens before `at` are the end of `tail`."""
        tokens, n = self._tokens, 2
        while n < len(tail) and n < at and tokens[at - 1 - n] == tail[-1 - n]:
            n += 1
        return n

    def _read(self, prompt: Sequence[int]) -> None:
        """Only when asked: a source that is never asked costs nothing."""
        self._tokens = [*prompt, *self._tokens]
        self._prompt = None
        for at in range(1, len(self._tokens)):
            self._note(at)

    def _note(self, at: int) -> None:
        """The pair that ends at `at`."""
        if not at:
            return
        places = self._places.setdefault((self._tokens[at - 1], self._tokens[at]), [])
        places.append(at + 1)
        if len(places) > MAX_PLACES:
            del places[0]
