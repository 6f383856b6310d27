"""Copy recipes from observed answers and what they answer: where values begin and end in inputs.

What is learnt are decision lists (`decision_lists`) over what `inputs.InputText` tells of an input, one a value of the
answer, and for ends the most telling cue that is seen often enough. All is tried on a sample of MAX_PAIRS pairs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backend.domain.recipes.copy_rules import MAX_CUE_CHARS, MAX_PLACE_CHARS, Copy, CopyKind, Frame
from backend.domain.recipes.inputs import InputText, input_in
from backend.domain.recipes.mining.decision_lists import WHOLE, Example, decision_list
from backend.domain.recipes.observing import Observed
from backend.domain.recipes.shapes import ShapeTable

MAX_PAIRS = 3_000
MAX_EXAMPLES = 800  # of one value
_KINDS = (CopyKind.GOES_ON, CopyKind.ENDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """`text` is the input in `prompt`."""

    prompt: tuple[int, ...]
    text: InputText
    answer: Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """`answer.tokens[begin:end]` begin with it; `weight`: how many of the samples agree on them, of WHOLE."""

    place: str
    data: bytes
    weight: int


def pairs_of(observed: Sequence[Observed], token_texts: Sequence[bytes], frame: Frame) -> list[Pair]:
    """Return at most MAX_PAIRS of those that have a prompt with an input, in an order of their own."""
    rows = sorted((one for one in observed if one.prompt), key=lambda one: (one.prompt, one.tokens, one.agreed))
    step = -(-len(rows) // MAX_PAIRS) or 1
    pairs = []
    for one in rows[::step]:
        tokens = input_in(one.prompt, frame) or ()
        text = InputText(b"".join(token_texts[token] for token in tokens if 0 <= token < len(token_texts)))
        if text.units:
            pairs.append(Pair(prompt=one.prompt, text=text, answer=one))
    return pairs


def copied_values(pairs: Sequence[Pair], shapes: ShapeTable, *, min_support: int, min_agreement_ppm: int) -> list[Copy]:
    """BEGINS, GOES_ON, ENDS and OPEN, by place."""
    by_place: dict[str, list[tuple[InputText, Value]]] = defaultdict(list)
    for pair in pairs:
        for value in values_in(pair.answer, shapes):
            if len(value.place) <= MAX_PLACE_CHARS:
                by_place[value.place].append((pair.text, value))
    rules: list[Copy] = []
    for place in sorted(by_place):
        examples = by_place[place]
        examples = examples[:: -(-len(examples) // MAX_EXAMPLES)]
        rules += _beginnings(place, examples, min_support, min_agreement_ppm)
        rules += _ends(place, examples, min_support, min_agreement_ppm)
    return rules


def values_in(answer: Observed, shapes: ShapeTable) -> Iterator[Value]:
    """The texts and numbers of an answer in JSON."""
    texts = shapes.pieces.texts
    state, place, begin = shapes.start, "", 0
    for i, token in enumerate(answer.tokens):
        to = shapes.advance(state, token)
        state, now = to, shapes.value_at(to)
        if now == place:
            continue
        if place and begin <= i:
            data = b"".join(texts[one] for one in answer.tokens[begin : i + 1])
            value = _text(data) if place.startswith("text") else _number(data)
            if value:
                weight = WHOLE * min(answer.agreed[begin : i + 1]) // answer.n_samples
                yield Value(place=place, data=value, weight=weight)
        place, begin = now, i + 1


def _text(data: bytes) -> bytes:
    return data.partition(b'"')[0]


def _number(data: bytes) -> bytes:
    value = data.lstrip()
    n = next((i for i, byte in enumerate(value) if byte not in b"0123456789.-"), len(value))
    return value[:n]


def _beginnings(
    place: str, values: Sequence[tuple[InputText, Value]], min_support: int, min_agreement_ppm: int
) -> Iterator[Copy]:
    examples = []
    for text, value in values:
        right = set(_spans(text, value.data))
        says = {cue: True if at in right else None for cue, at in text.anchors.items() if len(cue) <= MAX_CUE_CHARS}
        examples.append(Example(says, value.weight))
    for rule in decision_list(examples, min_support=min_support, min_agreement_ppm=min_agreement_ppm):
        held = sum(examples[i].weight for i in rule.covered if examples[i].says[rule.cue] is not None)
        n = len(rule.covered)
        yield Copy(what=CopyKind.BEGINS, place=place, cue=rule.cue, support=n, agreed=held // WHOLE)


def _spans(text: InputText, data: bytes) -> list[int]:
    return [at for at in text.places_of(data) if not text.is_inside(at + len(data))]


def _ends(
    place: str, values: Sequence[tuple[InputText, Value]], min_support: int, min_agreement_ppm: int
) -> Iterator[Copy]:
    events: list[tuple[list[str], bool]] = []
    for text, value in values:
        for begin in _spans(text, value.data)[:1]:
            end = begin + len(value.data)
            for at in range(begin + 1, end + 1):
                if at == end or (text.is_boundary(at) and not text.is_inside(at)):
                    cues = [cue for cue in text.ahead(at, text.n_units(begin, at)) if len(cue) <= MAX_CUE_CHARS]
                    events.append((cues, at == end))
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for cues, is_end in events:
        for cue in cues:
            counts[cue][is_end] += 1
    decided = {cue: _decision(of, min_agreement_ppm) for cue, of in counts.items() if of.total() >= min_support}
    for cue, what in _drop_needless(events, decided).items():
        of = counts[cue]
        agreed = of[what is CopyKind.ENDS] if what is not CopyKind.OPEN else max(of.values())
        yield Copy(what=what, place=place, cue=cue, support=of.total(), agreed=agreed)


def _decision(counts: Counter[bool], min_agreement_ppm: int) -> CopyKind:
    n = counts.total()
    for is_end in (False, True):
        if counts[is_end] * 1_000_000 >= (n + (counts[is_end] < n or n < 4)) * min_agreement_ppm:
            return _KINDS[is_end]
    return CopyKind.OPEN


def _drop_needless(events: Sequence[tuple[list[str], bool]], decided: dict[str, CopyKind]) -> dict[str, CopyKind]:
    """Drop the cues of which the next one says the same wherever they speak."""
    kept = dict(decided)
    rows = [cues for cues, _ in events]
    for depth in range(max((len(cues) for cues in rows), default=0)):
        differs: dict[str, bool] = {}
        for cues in rows:
            present = [cue for cue in cues[depth:] if cue in kept]
            if present and len(cues) > depth and present[0] == cues[depth]:
                after = kept[present[1]] if len(present) > 1 else CopyKind.OPEN
                differs[present[0]] = differs.get(present[0], False) or kept[present[0]] is not after
        for cue, is_needed in differs.items():
            if not is_needed:
                del kept[cue]
    return kept
