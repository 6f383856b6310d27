"""The tenants of the draft bench: who has how much, and of what. Seeded.

Sizes follow Zipf's law over tenants; a tenant's task families share them unequally (each 0.4 of the one before). A
family is about 5 to 15 topics out of one list that all tenants share, so that without a scope a slice's nearest
neighbours are mostly another tenant's. A topic is an intent of BANKING77 or CLINC150, and a slice's vector the MiniLM
row of one of the intent's questions with noise: two slices of one question have a cosine of about COPY_COSINE. Without
the data (`banking77_data`) questions come from a mixture with a cosine of about 0.5 within a topic.
"""

import json
import sys
import uuid
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.bench.banking77_data import data_folder, read_banking77
from tests.bench.selection_quality_texts import TextRows

D = 384
COPY_COSINE = 0.8
QUESTIONS_PER_TOPIC = 8
N_TOPICS_WITHOUT_DATA = 227
FAMILY_SHARE = 0.4
SLICES_A_FAMILY = 50  # a tenant has at most one family more than this often, and at most six
LARGEST_FAMILIES = 3  # of the largest tenant: its first family has 0.64 of what it has

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One tenant's one family; its slices are rows `start` to `stop` of the world."""

    tenant_id: uuid.UUID
    family: str
    start: int
    stop: int
    topics: tuple[int, ...]

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """`rows`: (n, D) float32 unit vectors of all slices, as embedded; `questions`: (topics, questions, D)."""

    pairs: tuple[Pair, ...]
    rows: Rows
    questions: Rows

    def near(self, pair: Pair, n: int, rng: np.random.Generator) -> Rows:
        """n new slices of the pair's family, (n, D) float32 unit rows."""
        return _slices(self.questions, pair.topics, n, rng)


def make_world(n_rows: int, n_tenants: int, *, seed: int = 0) -> World:
    rng = np.random.default_rng(seed)
    questions = _questions()
    pairs: list[Pair] = []
    rows = np.empty((n_rows, D), dtype=np.float32)
    for rank, size in enumerate(zipf_sizes(n_rows, n_tenants)):
        tenant_id = uuid.UUID(bytes=rng.bytes(16), version=4)
        most = min(6, size // SLICES_A_FAMILY + 1)
        shares = FAMILY_SHARE ** np.arange(int(rng.integers(1, most + 1)) if rank else LARGEST_FAMILIES)
        for number, own in enumerate(_divided(size, shares)):
            start = pairs[-1].stop if pairs else 0
            n_topics = int(rng.integers(5, 16))
            topics = tuple(int(t) for t in rng.choice(len(questions), n_topics, replace=False))
            pair = Pair(tenant_id=tenant_id, family=f"family-{number}", start=start, stop=start + own, topics=topics)
            rows[pair.start : pair.stop] = _slices(questions, topics, own, rng)
            pairs.append(pair)
    return World(pairs=tuple(pairs), rows=rows, questions=questions)


def zipf_sizes(n_rows: int, n_tenants: int) -> list[int]:
    """How many rows the tenants have, largest first: in proportion to 1 / rank, at least one each, n_rows in all."""
    return _divided(n_rows, 1 / np.arange(1, n_tenants + 1))


def _divided(total: int, shares: NDArray[np.float64]) -> list[int]:
    """Whole numbers in proportion to `shares` (falling); a part that would be empty is left out."""
    ends = np.round(np.cumsum(shares) / shares.sum() * total).astype(int)
    return [int(n) for n in np.diff(ends, prepend=0) if n > 0]


def classes_of(world: World) -> dict[str, tuple[Pair, ...]]:
    """The pairs that are asked, by size: the bounds of large and medium are those of 320,000 rows, in proportion."""
    scale = len(world.rows) / 320_000
    rng = np.random.default_rng(1)

    def some(low: float, high: float, n: int) -> tuple[Pair, ...]:
        fitting = [pair for pair in world.pairs if low <= pair.size <= high and pair is not largest]
        return tuple(fitting[i] for i in sorted(rng.permutation(len(fitting))[:n]))

    largest = max(world.pairs, key=lambda pair: pair.size)
    return {
        "largest": (largest,),
        "large": some(7_000 * scale, 18_000 * scale, 1),
        "medium": some(800 * scale, 2_500 * scale, 3),
        "small": some(20, 60, 4),
    }


def _slices(questions: Rows, topics: tuple[int, ...], n: int, rng: np.random.Generator) -> Rows:
    topic, question = rng.choice(topics, n), rng.integers(questions.shape[1], size=n)
    noise = rng.standard_normal((n, D), dtype=np.float32) / np.sqrt(D)
    return unit(questions[topic, question] + np.float32(np.sqrt(1 / COPY_COSINE - 1)) * noise)


def _questions() -> Rows:
    try:
        by_topic = _texts()
    except FileNotFoundError:
        print("no BANKING77 and CLINC150 here: topics of a mixture", file=sys.stderr)
        rng = np.random.default_rng(7)
        topics = rng.standard_normal((N_TOPICS_WITHOUT_DATA, 1, D)) + 0.5 * rng.standard_normal(D)
        return unit((topics + rng.standard_normal((len(topics), QUESTIONS_PER_TOPIC, D))).astype(np.float32))
    embedded = TextRows("drafts")
    embedded.embed([text for texts in by_topic for text in texts])
    embedded.save()
    return np.stack([embedded.of(texts) for texts in by_topic])


def _texts() -> list[list[str]]:
    """QUESTIONS_PER_TOPIC texts of each intent of the two data sets, always the same ones."""
    by_topic: dict[str, set[str]] = {}
    for question in read_banking77(data_folder()).train:
        by_topic.setdefault(f"banking77 {question.intent}", set()).add(question.text)
    for text, intent in json.loads((data_folder() / "clinc150" / "data_full.json").read_text())["train"]:
        by_topic.setdefault(f"clinc150 {intent}", set()).add(text)
    return [sorted(texts)[:QUESTIONS_PER_TOPIC] for _, texts in sorted(by_topic.items())]


def unit(rows: Rows) -> Rows:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)
