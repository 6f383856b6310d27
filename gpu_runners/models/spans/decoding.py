"""The way from the logits of a span student to the spans and classes that it read. Needs no torch.

Each layer of tags is decoded as a whole: the likeliest sequence in which a value goes on only where it began
(`viterbi`). A span's raw confidence is its least sure token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, logit

from backend.domain.extraction.elements import elements_of
from backend.domain.extraction.plan import ExtractionPlan, Way
from backend.domain.extraction.reads import ClassRead, SpanRead
from gpu_runners.models.spans.adapter import CLASSES, ELEMENTS, OPENS, TAGS
from gpu_runners.models.spans.viterbi import IMPOSSIBLE, likeliest
from gpu_runners.models.tensor_files import Array

PPM = 1_000_000
_EDGE = 1e-6
MOST_OF_SPARE = 0.5
MOST_TRIED, LEAST_TRIED = 4, 0.01  # classes of a closed set that are tried with the tags that they allow
SPANS, SETS, ANSWER = "spans", "classes", "answer"  # the kinds of what a confidence is about

Logits = Mapping[str, Array]
Offsets = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The spans and classes of one input, with how sure the least sure decision was, those that nothing is there
    among them."""

    spans: tuple[SpanRead, ...]
    classes: tuple[ClassRead, ...]
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Slope and offset of the log-odds, by what is judged: spans, classes, whole answers."""

    lines: Mapping[str, tuple[float, float]]

    def __call__(self, kind: str, raw: float) -> float:
        slope, offset = self.lines.get(kind, (1.0, 0.0))
        return float(expit(slope * logit(min(max(raw, _EDGE), 1 - _EDGE)) + offset))

    def _span(self, span: SpanRead) -> float:
        """The confidence of a span; of a spare one, which the likeliest tags leave out, even odds at most."""
        calibrated = self(SPANS, span.confidence)
        return min(calibrated, MOST_OF_SPARE) if span.is_spare else calibrated

    def _classes(self, classes: Sequence[ClassRead]) -> tuple[ClassRead, ...]:
        return tuple(replace(one, confidence=self(SETS, one.confidence)) for one in classes)

    def to_json(self) -> dict[str, list[int]]:
        return {kind: [round(value * PPM) for value in line] for kind, line in sorted(self.lines.items())}

    @classmethod
    def from_json(cls, value: Mapping[str, Sequence[int]]) -> "Calibration":
        return cls(lines={kind: (line[0] / PPM, line[1] / PPM) for kind, line in value.items()})

    def reading(self, reading: Reading) -> Reading:
        """The reading with calibrated confidences."""
        return Reading(
            spans=tuple(
                replace(one, confidence=self._span(one), classes=self._classes(one.classes)) for one in reading.spans
            ),
            classes=self._classes(reading.classes),
            confidence=self(ANSWER, reading.confidence),
        )


PLAIN = Calibration(lines={})


def read_logits(plan: ExtractionPlan, logits: Logits, offsets: Offsets, glued: Sequence[bool] = ()) -> Reading:
    """The reading of one input: `tags.<layer>` (n, rows) of its n tokens, `opens` (n, 1), `elements.<rule>`
    (n, n_choices), `classes.<rule>` (n_choices,). A token that is `glued` has the leaf of the one before it, or is
    outside with it (empty: no token is). A closed set's class and the tags are chosen together, where the class bars
    leaves. Confidences are raw."""
    scores = [log_softmax(logits[f"{TAGS}{number}"], axis=1) for number in range(len(plan.layers))]
    glued = glued if plan.whole_words else ()
    classes: list[ClassRead] = []
    sureness = [1.0]
    barred: frozenset[int] = frozenset()
    for number in plan.class_rules():
        if plan.rules[number].way is Way.MANY:
            read, sure = _choose_members(plan, number, logits[f"{CLASSES}{number}"])
        else:
            one, barred = _choose_class(plan, number, logits[f"{CLASSES}{number}"], scores, glued, barred)
            read, sure = [one], one.confidence
        classes += read
        sureness.append(sure)
    opens = logits[OPENS][:, 0] if OPENS in logits else None
    spans: list[SpanRead] = []
    for layer, own in zip(plan.layers, scores, strict=True):
        path = likeliest(_without(own, layer, barred), glued)
        if len(path):
            sureness.append(float(np.exp(own[np.arange(len(path)), path].min())))
        spans += _spans(plan, layer, own, path, offsets, opens)
    if each := plan.element_rules():
        spans = _with_elements(plan, each, spans, logits, offsets)
        elements = [element for lists in elements_of(plan, spans).values() for element in lists]
        sureness += [one.confidence for element in elements for one in element[0].classes]
    return Reading(spans=tuple(spans), classes=tuple(classes), confidence=min(sureness))


def _with_elements(
    plan: ExtractionPlan, each: Sequence[int], spans: Sequence[SpanRead], logits: Logits, offsets: Offsets
) -> list[SpanRead]:
    """The spans of lists with the classes that their first token says of the element that it may open."""
    number_of = {start: number for number, (start, _) in reversed(list(enumerate(offsets)))}
    scores = {rule: log_softmax(logits[f"{ELEMENTS}{rule}"], axis=1) for rule in each}
    lists = {rule: plan.rules[rule].list_path for rule in each}
    out = []
    for span in spans:
        own = [rule for rule in each if lists[rule] == plan.rules[span.rule].list_path]
        reads = []
        for rule in own:
            row = scores[rule][number_of[span.start]]
            best = int(row.argmax())
            value, confidence = plan.rules[rule].choices[best], float(np.exp(row[best]))
            reads.append(ClassRead(rule=rule, value=value, confidence=confidence))
        out.append(replace(span, classes=tuple(reads)))
    return out


def _choose_class(
    plan: ExtractionPlan,
    number: int,
    logits: Array,
    scores: Sequence[Array],
    glued: Sequence[bool],
    barred: frozenset[int],
) -> tuple[ClassRead, frozenset[int]]:
    """The class of a closed set, and all leaves that are barred with it. Of several likely classes that bar different
    leaves, the one is taken whose probability times that of the tags that it allows is the greatest."""
    rule = plan.rules[number]
    own = log_softmax(logits)
    likely = [int(i) for i in np.argsort(-own)[:MOST_TRIED] if own[i] > np.log(LEAST_TRIED)] or [int(own.argmax())]
    bars = {i: barred | frozenset(rule.bars[i] if rule.bars else ()) for i in likely}
    best = likely[0]
    if len(set(bars.values())) > 1:
        best = max(likely, key=lambda i: (own[i] + _tag_score(plan, scores, glued, bars[i]), -i))
    return ClassRead(rule=number, value=rule.choices[best], confidence=float(np.exp(own[best]))), bars[best]


def _tag_score(plan: ExtractionPlan, scores: Sequence[Array], glued: Sequence[bool], barred: frozenset[int]) -> float:
    """The log-probability of the likeliest tags without the barred leaves."""
    total = 0.0
    for layer, own in zip(plan.layers, scores, strict=True):
        path = likeliest(_without(own, layer, barred), glued)
        total += float(own[np.arange(len(path)), path].sum())
    return total


def _without(scores: Array, layer: Sequence[int], barred: frozenset[int]) -> Array:
    """The log-probabilities with those of barred leaves made impossible."""
    columns = [1 + 2 * place + side for place, leaf in enumerate(layer) if leaf in barred for side in (0, 1)]
    if not columns:
        return scores
    kept = scores.copy()
    kept[:, columns] = IMPOSSIBLE
    return kept


def _spans(
    plan: ExtractionPlan,
    layer: Sequence[int],
    scores: Array,
    path: NDArray[np.int64],
    offsets: Offsets,
    opens: Array | None,
) -> list[SpanRead]:
    read: list[SpanRead] = []
    at = 0
    while at < len(path):
        tag = int(path[at])
        if not tag:
            at += 1
            continue
        end = at + 1
        while end < len(path) and path[end] == tag + 1:
            end += 1
        raw = float(np.exp(scores[np.arange(at, end), path[at:end]].min()))
        read.append(
            SpanRead(
                rule=layer[(tag - 1) // 2],
                start=offsets[at][0],
                end=offsets[end - 1][1],
                confidence=raw,
                opens=opens is not None and bool(opens[at] > 0),
            )
        )
        at = end
    there = {span.rule for span in read}
    for place, number in enumerate(layer):
        if plan.rules[number].is_always and number not in there and len(path):
            read.append(_spare(number, place, scores, offsets))
    return read


def _spare(number: int, place: int, scores: Array, offsets: Offsets) -> SpanRead:
    """The likeliest span of a leaf that the likeliest tags leave out."""
    begins, goes_on = scores[:, 1 + 2 * place], scores[:, 2 + 2 * place]
    at = int(begins.argmax())
    end = at + 1
    while end < len(scores) and goes_on[end] > scores[end, 0]:
        end += 1
    raw = float(np.exp(begins[at]))
    return SpanRead(rule=number, start=offsets[at][0], end=offsets[end - 1][1], confidence=raw, is_spare=True)


def _choose_members(plan: ExtractionPlan, number: int, logits: Array) -> tuple[list[ClassRead], float]:
    """The members of a closed set that are there, and how sure the least sure of its decisions is."""
    rule = plan.rules[number]
    shares = expit(logits)
    chosen = [
        ClassRead(rule=number, value=choice, confidence=float(share))
        for choice, share in zip(rule.choices, shares, strict=True)
        if share > 0.5
    ]
    return chosen, float(np.maximum(shares, 1 - shares).min())
