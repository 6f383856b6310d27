"""Tokens to text as they come: whole characters only, and nothing that may turn out to be the beginning of a stop."""

from collections.abc import Sequence
from typing import Any

HELD = 12  # tokens of one broken character at most; then it is given out as it is


class Detokenizer:
    """The text of a growing list of tokens, piece by piece. Each piece is the difference of two decodings of the last
    few tokens, because a decoder may treat a text's first token differently."""

    def __init__(self, tokenizer: Any) -> None:
        self._backend = tokenizer.backend_tokenizer
        self._ids: list[int] = []
        self._prefix = self._read = 0

    def push_run(self, tokens: Sequence[int]) -> str:
        """Push many tokens as `push` would one after the other, in two decodings instead of two a token."""
        text = self._decode([*self._ids[self._prefix :], *tokens])
        if "\ufffd" in text:
            return "".join([self.push(token) for token in tokens])
        known = self._decode(self._ids[self._prefix : self._read])
        self._ids += tokens
        if len(text) < len(known):
            return ""
        self._prefix, self._read = self._read, len(self._ids)
        return text[len(known) :]

    def push(self, token: int) -> str:
        self._ids.append(token)
        known = self._decode(self._ids[self._prefix : self._read])
        text = self._decode(self._ids[self._prefix :])
        broken = text.endswith("\ufffd") and len(self._ids) - self._read <= HELD
        if broken or len(text) < len(known):
            return ""
        self._prefix, self._read = self._read, len(self._ids)
        return text[len(known) :]

    def flush(self) -> str:
        """Return the text that was held back as an unfinished character."""
        known = self._decode(self._ids[self._prefix : self._read])
        text = self._decode(self._ids[self._prefix :])
        self._prefix = self._read = len(self._ids)
        return text[len(known) :]

    def token(self, token: int) -> str:
        """One token by itself, special ones too; a part of a character shows as U+FFFD."""
        return str(self._backend.decode([token], skip_special_tokens=False))

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._backend.decode(ids, skip_special_tokens=True)) if ids else ""


class StopStrings:
    """Holds text back while it may be the beginning of a stop text, and cuts at the first one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""

    def push(self, piece: str) -> tuple[str, bool]:
        """(what may be given out now, whether a stop string has come)."""
        if not self._stops:
            return piece, False
        text = self._held + piece
        starts = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if starts:
            self._held = ""
            return text[: min(starts)], True
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The longest end of `text` that `stop` begins with."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
