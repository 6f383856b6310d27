"""The proposals for a field's value: places of the text from which it may be copied."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backend.domain.rules.covering import Bools, Ints
from backend.domain.rules.field_texts import FieldTexts
from backend.domain.rules.places import Place, Reader, reader_of
from backend.domain.rules.rule_list import Copy
from backend.domain.rules.text_patterns import SOURCES

N_FOLDS = 4
MAX_VOCABULARY = 5_000
MAX_VOCABULARY_WORDS = 6
MIN_VALUE_SHARE = 0.6  # of the texts with a phrase, those in which it is the field's value
MAX_CONTEXTS = 60
MAX_AFTERS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProposal:
    """`rows`: the texts where the copy finds one place; `rights`: where that is the field's value. A vocabulary's are
    counted fold by fold with the phrases of the other folds: its own it always knows."""

    copy: Copy
    rows: Ints
    rights: Bools


def copy_proposals(
    texts: FieldTexts, field: int, taken: Sequence[list[Place]], vocabulary: int, *, min_right: int
) -> tuple[list[CopyProposal], tuple[str, ...]]:
    """Propose copies for a field, with the field's vocabulary, which goes to index `vocabulary` of the list."""
    spots = [(at, spot) for at, spot in enumerate(texts.spots[field]) if spot is not None]
    if len(spots) < min_right:
        return [], ()
    made: list[CopyProposal] = []
    for copy in (*_patterns(texts, field, spots), *_contexts(texts, spots, min_right)):
        reader = reader_of(copy, ())
        made.append(_judge(texts, field, taken, copy, dict.fromkeys(range(texts.n), reader)))
    phrases, folds = _vocabularies(texts, field, spots)
    if phrases:
        readers = [reader_of(Copy(vocabulary=0), [fold]) for fold in folds]
        by_text = {at: readers[at % N_FOLDS] for at in range(texts.n)}
        made.append(_judge(texts, field, taken, Copy(vocabulary=vocabulary), by_text))
    return [one for one in made if one.rights.sum() >= min_right], phrases


def _judge(
    texts: FieldTexts, field: int, taken: Sequence[list[Place]], copy: Copy, readers: Mapping[int, Reader]
) -> CopyProposal:
    needed = copy.between[0].encode().split()[:1] if copy.between is not None and copy.between[0] != "^" else []
    rows, rights = [], []
    for at, places in enumerate(texts.places):
        if needed and needed[0] not in places.words:
            continue
        read = readers[at](places, taken[at])
        if read is not None:
            rows.append(at)
            rights.append(read[0] == texts.leaves[field][at])
    return CopyProposal(copy=copy, rows=np.array(rows, np.int64), rights=np.array(rights, np.bool_))


Spots = Sequence[tuple[int, Place]]


def _before(texts: FieldTexts, at: int, place: Place, n_words: int) -> str:
    words = texts.places[at].words[max(0, place[0] - n_words) : place[0]]
    return b" ".join(words).decode("utf-8", "replace") if len(words) == n_words else ""


def _patterns(texts: FieldTexts, field: int, spots: Spots) -> Iterator[Copy]:
    is_number = not any(texts.leaves[field][at].startswith('"') for at, _ in spots)
    counts: Counter[tuple[str, str]] = Counter()
    for at, place in spots:
        for name in SOURCES:
            if any(texts.places[at].words_in(span) == place for span in texts.places[at].spans_of(name)):
                counts.update({(name, _before(texts, at, place, n)) for n in (0, 1, 2)})
    for name, after in _common(counts, MAX_AFTERS):
        as_number = is_number and name in ("number", "integer")
        if _is_plain(after):
            yield Copy(pattern=name, after=after, as_number=as_number)


def _contexts(texts: FieldTexts, spots: Spots, min_right: int) -> Iterator[Copy]:
    counts: Counter[tuple[str, str]] = Counter()
    for at, (first, end) in spots:
        words = texts.places[at].words
        starts = ["^"] if first == 0 else [_before(texts, at, (first, end), n) for n in (1, 2)]
        behind = [b" ".join(words[end : end + n]).decode("utf-8", "replace") for n in (1, 2) if end + n <= len(words)]
        counts.update((start, stop) for start in starts for stop in (behind if end < len(words) else ["$"]) if start)
    for between in _common(Counter({k: n for k, n in counts.items() if n >= min_right}), MAX_CONTEXTS):
        if all(end in ("^", "$") or _is_plain(end) for end in between):
            yield Copy(between=between)


def _is_plain(phrase: str) -> bool:
    return len(phrase) <= 100 and "\ufffd" not in phrase


def _common(counts: Counter[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    return sorted(counts, key=lambda pair: (-counts[pair], pair))[:most]


def _vocabularies(texts: FieldTexts, field: int, spots: Spots) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The phrases that are the field's value where they stand; and for each fold those that the others show."""
    by_phrase: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
    for at, place in spots:
        if place[1] - place[0] <= MAX_VOCABULARY_WORDS and texts.leaves[field][at].startswith('"'):
            by_phrase[b" ".join(texts.places[at].words[slice(*place)])][at % N_FOLDS] += 1
    met: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
    for at, places in enumerate(texts.places):
        for phrase in _phrases(places.words):
            if phrase in by_phrase:
                met[phrase][at % N_FOLDS] += 1

    def choose(fold: int) -> tuple[str, ...]:
        counted = {
            phrase: (values.total() - values[fold], met[phrase].total() - met[phrase][fold])
            for phrase, values in by_phrase.items()
        }
        sure = [p for p, (values, all_) in counted.items() if values > 0 and values >= MIN_VALUE_SHARE * all_]
        plain = [phrase.decode("utf-8", "replace") for phrase in sorted(sure, key=lambda p: (-counted[p][0], p))]
        return tuple(sorted([phrase for phrase in plain if _is_plain(phrase)][:MAX_VOCABULARY]))

    return choose(-1), [choose(fold) for fold in range(N_FOLDS)]


def _phrases(words: Sequence[bytes]) -> Iterable[bytes]:
    return {
        b" ".join(words[at : at + length])
        for length in range(1, MAX_VOCABULARY_WORDS + 1)
        for at in range(len(words) - length + 1)
    }
