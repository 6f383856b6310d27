"""A text is embedded once a process: the compiles of these tests ask for the same rows again and again, a third of
their time. The full profile embeds each time, as the product does: rows differ in their last bits by what else was in
the batch."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.profiles import IS_FULL
from workers.embedding.protocol import Rows
from workers.embedding.sentence import SentenceEmbedder


@pytest.fixture(scope="session")
def rows_so_far() -> dict[tuple[str, str], Rows]:
    return {}


@pytest.fixture(autouse=True)
def texts_are_embedded_once(rows_so_far: dict[tuple[str, str], Rows]) -> Iterator[None]:
    really = SentenceEmbedder.embed

    def embed(self: SentenceEmbedder, texts: list[str]) -> Rows:
        own = self.identity
        new = [text for text in dict.fromkeys(texts) if (own, text) not in rows_so_far]
        rows_so_far.update(zip([(own, text) for text in new], really(self, new), strict=True))
        return np.stack([rows_so_far[own, text] for text in texts]) if texts else really(self, texts)

    with pytest.MonkeyPatch.context() as patch:
        if not IS_FULL:
            patch.setattr(SentenceEmbedder, "embed", embed)
        yield
