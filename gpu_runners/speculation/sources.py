"""The sources of the drafted tokens of one answer: its pack, its schema, its own prompt."""

from collections.abc import Sequence
from typing import Any

from backend.domain.recipes.lookup import PackIndex
from gpu_runners.models.protocol import DraftKind
from gpu_runners.speculation.feedback_log import PackLog

MAX_MATCH = 12  # agreeing tokens that are counted
MAX_PLACES = 8  # of one pair, the latest
_LAST = 4_096  # tokens of a prompt's end that are looked up


class PackSource:
    """The task's pack. `key` is the recipe's place in the pack, of a copy recipe behind all others. `prompt`: what is
    answered, of which copies are made. Places that no recipe knows go to the log."""

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
            self._log.count_miss(cursor.shape)
        return run


class SchemaSource:
    """Schema-forced tokens: what the constraint leaves no choice about (keys and punctuation of an output schema). They
    are the tokens that llguidance would write; a model may cut the same text into others, so they are drafts like any
    other and not put into the answer.

    `matcher` is the request's own llguidance LLMatcher, which the engine moves along; looking ahead is done on a
    copy, so that no drafted token can use up what it may compute for the answer."""

    kind = DraftKind.SCHEMA
    key = 0

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self._known: list[int] = []  # forced tokens from here on, not yet written

    def advance(self, token: int) -> None:
        if self._known and self._known[0] == token:
            del self._known[0]
        else:
            self._known = []

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        if not ahead:
            if not self._known:
                self._known = list(self._matcher.deep_copy().compute_ff_tokens())
            return self._known[:most]
        known = self._known
        if len(known) > len(ahead) and known[: len(ahead)] == list(ahead):
            return known[len(ahead) : len(ahead) + most]
        copy = self._matcher.deep_copy()
        if copy.try_consume_tokens(list(ahead)) < len(ahead):
            return ()
        return list(copy.compute_ff_tokens())[:most]


class PromptSource:
    """Prompt look-up: what followed the same tokens in the prompt, or in the answer so far (Saxena, 2023).

    The last two tokens are looked up in a table of all earlier pairs; of the places there, the one that agrees with
    most of what is written wins, the latest between equals. The table grows with the answer. `key` is how many tokens
    agreed: a long agreement is worth more than a short one."""

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
        """Count the tokens before `at` that are the end of `tail`."""
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
