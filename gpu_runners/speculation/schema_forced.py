"""Schema-forced tokens: what the constraint leaves no choice about (keys and punctuation of an output schema).

They are the tokens that llguidance would write; a model may cut the same text into others, so they are drafts like any
other and not put into the answer.
"""

from collections.abc import Sequence
from typing import Any

from gpu_runners.models.protocol import DraftKind


class SchemaSource:
    """`matcher` is the request's own llguidance LLMatcher, which the engine moves along; looking ahead is done on a
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
