"""The structure of a task's answers, for the registry: shapes and the runs that follow them, read byte by byte.

Not from the task's pack: a pack keeps what pays under one tokenizer beside its literal contexts, and holds what an
epoch gave to it. Answers know neither, so that an entry counts for those who saw it alone.
"""

from collections.abc import Iterable, Sequence

from backend.domain.recipes.mining.corpus import corpus_of, grouped_by_shape
from backend.domain.recipes.mining.runs import runs_of
from backend.domain.recipes.observing import Observed
from backend.domain.recipes.registry.structural import Structure, structural

MAX_STRUCTURES = 2_000
MAX_READ_BYTES = 200_000  # of answers: half a second, and two at worst
_BYTES = tuple(bytes([n]) for n in range(256))
# Runs of bytes, so longer than runs of tokens. Seen six times in one tenant's answers, and followed nine times in ten.
LEAST_SEEN, LEAST_AGREED_PPM, MOST_BYTES = 6, 900_000, 64


def structures_of(answers: Iterable[str]) -> list[Structure]:
    """List structures in order, none twice, at most MAX_STRUCTURES. Answers beyond MAX_READ_BYTES are not read. Every
    place between two bytes is one: where tokens will end is not known here."""
    corpus = corpus_of(_observe(answers), _BYTES)
    groups = runs_of(
        corpus,
        grouped_by_shape(corpus, LEAST_SEEN, keyed=False),
        _BYTES,
        max_draft=MOST_BYTES,
        min_support=LEAST_SEEN,
        min_agreement_ppm=LEAST_AGREED_PPM,
        end_ids=(),
    )
    structures: set[Structure] = set()
    for group in groups.lengths.nonzero()[0].tolist():
        shape = corpus.shapes.text(int(corpus.states[groups.first[group]]))
        run = bytes(groups.runs[group, : groups.lengths[group]].tolist()).decode()
        kept = structural(shape, run)
        if kept is not None:
            structures.add(kept)
    return sorted(structures)[:MAX_STRUCTURES]


def _observe(answers: Iterable[str]) -> Sequence[Observed]:
    observed, n_read = [], 0
    for answer in answers:
        raw = answer.encode("utf-8", "replace")
        n_read += len(raw)
        if n_read > MAX_READ_BYTES:
            break
        if raw:
            observed.append(Observed(tokens=tuple(raw), agreed=(1,) * len(raw), n_samples=1))
    return observed
