"""The rows of the speed bench: questions of BANKING77 embedded by MiniLM, as far as they reach.

To 5,000 rows every row is a question of its own. Above, the 5,000 are repeated with Gaussian noise that leaves a cosine
of 0.93 between two copies, what two ways of putting one question have (median of edited variants). Without the data
(`banking77_data`) the questions' place is taken by a mixture: topics, sentences at a cosine of about 0.55 in a topic.
"""

import sys

import numpy as np
from numpy.typing import NDArray

from tests.bench.banking77_data import data_folder, read_banking77
from tests.bench.selection_quality_texts import TextRows
from tests.bench.selection_speed_cases import Pool

N_QUESTIONS = 5_000
COPY_COSINE = 0.93


def make_pool(n: int, seed: int = 0) -> Pool:
    rng = np.random.default_rng(seed)
    rows = _questions(min(n, N_QUESTIONS))
    if n > len(rows):
        copies = rows[np.arange(n) % len(rows)]
        noise = rng.standard_normal(copies.shape, dtype=np.float32) / np.sqrt(copies.shape[1])
        rows = _unit(copies + np.float32(np.sqrt(1 / COPY_COSINE - 1)) * noise)
    return Pool(rows=rows[rng.permutation(n)], scores=np.sort(rng.random(n))[::-1].copy(), k=n // 3)


def _questions(n: int) -> NDArray[np.float32]:
    try:
        questions = read_banking77(data_folder()).train
    except FileNotFoundError:
        print("no BANKING77 here: rows of a mixture", file=sys.stderr)
        return _mixture(n)
    texts = sorted({question.text for question in questions})
    chosen = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:N_QUESTIONS]][:n]
    embedded = TextRows("banking77")
    embedded.embed(chosen)
    return embedded.of(chosen)


def _mixture(n: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((77, 384)) + 0.5 * rng.standard_normal(384)
    return _unit((topics[rng.integers(0, 77, n)] + rng.standard_normal((n, 384))).astype(np.float32))


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
