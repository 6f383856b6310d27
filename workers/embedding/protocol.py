"""The embedder as the pipeline sees it."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]


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
