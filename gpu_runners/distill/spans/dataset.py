"""An extraction's pairs: read strictly, aligned to spans and classes, and those to the tokens of the encoder."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.answers.json_values import BadAnswer, parse_answer
from backend.domain.extraction.alignment import Aligner, Alignment
from backend.domain.extraction.occurrences import Document
from backend.domain.extraction.plan import ExtractionPlan, Way
from backend.domain.extraction.schema_leaves import Leaf
from gpu_runners.errors import JobFailed
from gpu_runners.models.spans.tokens import SpanTokens

OUTSIDE = 0
NOT_ASKED = -100  # a target that no loss looks at
MOST_WINDOWS = 8  # of one input that train


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    text: str
    answer: Any
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A pair as a fit takes it. `windows` are the ids of the windows that train, `kinds` the kinds of the same tokens;
    of each token of the text that lies in
    one, `places` has its window and its place there, `offsets` and `glued` are as `SpanTokens` has them, `tags` has its
    tag in each layer, and `opens` 1, 0 or NOT_ASKED; `elements` by rule the number of the class of the element that
    a token opens, else NOT_ASKED. `classes` has by rule the number of the class, or of a MANY rule
    the numbers of those that are there."""

    windows: tuple[tuple[int, ...], ...]
    kinds: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, int], ...]
    offsets: tuple[tuple[int, int], ...]
    glued: tuple[bool, ...]
    tags: tuple[tuple[int, ...], ...]
    opens: tuple[int, ...]
    elements: dict[int, tuple[int, ...]]
    classes: dict[int, tuple[int, ...]]
    weight: float

    @property
    def n_ids(self) -> int:
        return sum(map(len, self.windows))


def read_pairs(data: bytes) -> list[Pair]:
    """Parse the dataset blob. Raises JobFailed(invalid_dataset) naming the line."""
    pairs = []
    for n, line in enumerate(data.decode("utf-8", "replace").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            is_whole = isinstance(row, dict) and {"input", "output", "weight"} <= set(row) <= {*_KEYS}
            if not is_whole or not isinstance(row["input"], str) or not isinstance(row["output"], str):
                raise _invalid(f"line {n} is not {{input, output, weight}} with texts")
            weight = row["weight"]
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
                raise _invalid(f"line {n} has a weight outside (0, 1e6)")
            pairs.append(Pair(text=row["input"], answer=parse_answer(row["output"]), weight=float(weight)))
        except BadAnswer as error:
            raise _invalid(f"line {n} has an output that is no answer: {error}") from error
        except ValueError as error:
            raise _invalid(f"line {n} is not JSON") from error
    if not pairs:
        raise _invalid("it is empty")
    return pairs


_KEYS = ("input", "output", "weight", "group")


def align_pairs(plan: ExtractionPlan, leaves: Sequence[Leaf], pairs: Sequence[Pair]) -> list[Alignment]:
    aligner = Aligner(plan.rules, leaves)
    documents = [(Document(pair.text), pair.answer) for pair in pairs]
    aligner.learn(documents)
    return [aligner.align(document, answer) for document, answer in documents]


def example_of(
    plan: ExtractionPlan, leaves: Sequence[Leaf], pair: Pair, alignment: Alignment, tokens: SpanTokens
) -> Example:
    """The targets of a pair. Tokens that lie outside of what trains, and spans that no token begins, are left out."""
    layer_of = {rule: (n, place) for n, layer in enumerate(plan.layers) for place, rule in enumerate(layer)}
    tags = [[OUTSIDE] * len(tokens.offsets) for _ in plan.layers]
    opens = [NOT_ASKED] * len(tokens.offsets)
    elements = {rule: [NOT_ASKED] * len(tokens.offsets) for rule in plan.element_rules()}
    for span in alignment.spans:
        inside = [i for i, (start, end) in enumerate(tokens.offsets) if start < span.end and end > span.start]
        layer, place = layer_of[span.rule]
        for nth, i in enumerate(inside):
            tags[layer][i] = 1 + 2 * place + (nth > 0)
        if inside and leaves[span.rule].list_path:
            opens[inside[0]] = int(span.opens)
        for read in span.classes if inside else ():
            number = _number_of(plan.rules[read.rule].choices, read.value)
            elements[read.rule][inside[0]] = NOT_ASKED if number is None else number
    classes: dict[int, tuple[int, ...]] = {i: () for i in plan.class_rules() if plan.rules[i].way is Way.MANY}
    for read in alignment.classes:
        number = _number_of(plan.rules[read.rule].choices, read.value)
        if number is not None:
            classes[read.rule] = (*classes.get(read.rule, ()), number)
    chosen = _windows(tokens, tags)
    place_of = {number: nth for nth, number in enumerate(chosen)}
    kept = [(i, place_of[window], place) for i, (window, place) in enumerate(tokens.owners()) if window in place_of]
    return Example(
        windows=tuple(tokens.windows[i].ids for i in chosen),
        kinds=tuple(tokens.windows[i].kinds for i in chosen),
        places=tuple((window, place) for _, window, place in kept),
        offsets=tuple(tokens.offsets[i] for i, _, _ in kept),
        glued=tuple(tokens.glued[i] for i, _, _ in kept),
        tags=tuple(tuple(layer[i] for i, _, _ in kept) for layer in tags),
        opens=tuple(opens[i] for i, _, _ in kept),
        elements={rule: tuple(own[i] for i, _, _ in kept) for rule, own in elements.items()},
        classes=classes,
        weight=pair.weight,
    )


def _number_of(choices: Sequence[Any], value: Any) -> int | None:
    """True is no 1 here."""
    return next((i for i, one in enumerate(choices) if type(one) is type(value) and one == value), None)


def _windows(tokens: SpanTokens, tags: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """All windows, or of many those with values, then the first."""
    if len(tokens.windows) <= MOST_WINDOWS:
        return tuple(range(len(tokens.windows)))

    def is_empty(number: int) -> bool:
        inside = tokens.windows[number].tokens
        return not any(layer[i] for layer in tags for i in inside)

    return tuple(sorted(sorted(range(len(tokens.windows)), key=lambda i: (is_empty(i), i))[:MOST_WINDOWS]))


def _invalid(why: str) -> JobFailed:
    return JobFailed(f"The job's dataset cannot be used: {why}.", code="invalid_dataset")
