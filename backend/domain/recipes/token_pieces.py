"""Tokens by their bytes: what a text that was cut for the input is called where it begins elsewhere."""

from collections.abc import Sequence
from functools import cached_property


class TokenPieces:
    """Of one vocabulary; the table is made when it is first asked for."""

    def __init__(self, token_texts: Sequence[bytes]) -> None:
        self.texts = token_texts

    def longest(self, data: bytes) -> int:
        """The token that `data` is, or else the longest one that it begins with; -1 for none. A tokenizer may cut it
        otherwise: then the model refuses the draft.

        >>> TokenPieces([b"", b"a", b"ab", b"abc"]).longest(b"abd")
        2
        """
        of_text = self._of_text
        for n in range(min(len(data), self._most), 0, -1):
            token = of_text.get(data[:n])
            if token is not None:
                return token
        return -1

    @cached_property
    def _of_text(self) -> dict[bytes, int]:
        return {text: token for token, text in reversed(list(enumerate(self.texts))) if text}

    @cached_property
    def _most(self) -> int:
        return max(map(len, self.texts), default=0)
