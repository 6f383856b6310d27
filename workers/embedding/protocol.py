"""The embedder as the pipeline sees it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """The tokens of a text: `n_tokens` of all of it, cut nowhere, and `n_alphabetic_tokens` of its letters alone, where
    one of an unknown word counts for each of its letters."""

    n_tokens: int
    n_alphabetic_tokens: int


class Embedder(Protocol):
    @property
    def identity(self) -> str:
        """Name and sha256 of the weights: vectors of two identities are never compared."""
        ...

    def embed(self, texts: list[str]) -> Rows:
        """(n, d) float32, unit rows, one per text in order."""
        ...

    def count_tokens(self, texts: list[str]) -> int:
        """The number of tokens that the embedder reads for these texts."""
        ...

    @property
    def max_tokens(self) -> int:
        """The tokens of a text that it reads; the rest is cut."""
        ...

    def spell(self, texts: list[str]) -> list[Spelling]:
        """The tokens of each text."""
        ...
