"""New texts of the pairs that train: values of a leaf take each other's places.

What a model should learn of a leaf is where its values stand; of a few pairs it learns the values themselves. So in
each epoch a share of the texts has values of other texts in the place of its own (mention replacement, Dai and Adel
2020). The texts around them stay, and so does what does not come from a span. Beside that a share of the texts trains
as if it had no capitals, which are a help where they are: those who write later may leave them out.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from backend.domain.extraction.alignment import Alignment
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.extraction.reads import SpanRead
from backend.domain.extraction.schema_leaves import Leaf
from gpu_runners.distill.spans.dataset import Example, Pair, example_of
from gpu_runners.models.spans.kinds import drop_case
from gpu_runners.models.spans.tokens import SpanTokenizer

FOLLOWS = 0.9  # of the elements with one value, those of its commonest class

Classes = tuple[tuple[int, str], ...]  # rules with their values
Like = tuple[int, Classes]
SWAPPED = 0.5  # of the values of a text that is changed
LOWERED = 0.3  # of the texts


class Swapping:
    """The examples of each epoch, of pairs with their alignments. `share` of the texts are changed."""

    def __init__(
        self,
        plan: ExtractionPlan,
        leaves: Sequence[Leaf],
        tokenizer: SpanTokenizer,
        pairs: Sequence[Pair],
        alignments: Sequence[Alignment],
        examples: Sequence[Example],
        *,
        share: float,
        seed: int,
    ) -> None:
        self._plan, self._leaves, self._tokenizer = plan, leaves, tokenizer
        self._pairs, self._alignments, self._examples = pairs, alignments, examples
        self._share, self._seed = share, seed
        self._following = _following(pairs, alignments)
        self._surfaces: dict[Like, list[str]] = {}
        for pair, alignment in zip(pairs, alignments, strict=True):
            likes = self._likes(alignment)
            for span in alignment.spans:
                self._surfaces.setdefault(likes[span], []).append(pair.text[span.start : span.end])

    def of_epoch(self, epoch: int) -> list[Example]:
        """The examples of an epoch, which follow from the seed and its number alone."""
        rng = random.Random(f"{self._seed}/{epoch}")
        chosen = [i for i, one in enumerate(self._alignments) if one.spans and rng.random() < self._share]
        changed = [self._swap(i, rng) for i in chosen]
        tokens = self._tokenizer.read([pair.text for pair, _ in changed])
        examples = list(self._examples)
        for i, (pair, alignment), own in zip(chosen, changed, tokens, strict=True):
            examples[i] = example_of(self._plan, self._leaves, pair, alignment, own)
        return [_drop_case(one) if rng.random() < LOWERED else one for one in examples]

    def _likes(self, alignment: Alignment) -> dict[SpanRead, Like]:
        """The values whose places each span's may take: those of its leaf, and where a class of its element follows
        from the value, of elements of the same class."""
        return {
            span: (span.rule, tuple(one for one in classes if (span.rule, one[0]) in self._following))
            for span, classes in _classes_of(alignment).items()
        }

    def _swap(self, i: int, rng: random.Random) -> tuple[Pair, Alignment]:
        """A pair with other values; those that overlap another stay as they are."""
        pair, alignment = self._pairs[i], self._alignments[i]
        spans = sorted(alignment.spans, key=lambda span: (span.start, span.end))
        likes = self._likes(alignment)
        text, at, moved = "", 0, list[SpanRead]()
        for number, span in enumerate(spans):
            others = (*spans[:number], *spans[number + 1 :])
            is_alone = all(span.end <= other.start or other.end <= span.start for other in others)
            surface = pair.text[span.start : span.end]
            if is_alone and rng.random() < SWAPPED:
                surface = rng.choice(self._surfaces[likes[span]])
            if span.start < at:  # inside of the one before, which stayed
                shift = len(text) - at
                moved.append(replace(span, start=span.start + shift, end=span.end + shift))
                continue
            text += pair.text[at : span.start]
            moved.append(replace(span, start=len(text), end=len(text) + len(surface)))
            text, at = text + surface, span.end
        made = replace(pair, text=text + pair.text[at:])
        return made, replace(alignment, spans=tuple(moved))


def _classes_of(alignment: Alignment) -> dict[SpanRead, Classes]:
    """The classes of the element that each span lies in."""
    out: dict[SpanRead, Classes] = {}
    element: Classes = ()
    for span in alignment.spans:  # those of lists come last, element by element
        if span.opens:
            element = tuple((read.rule, repr(read.value)) for read in span.classes)
        out[span] = element
    return out


def _following(pairs: Sequence[Pair], alignments: Sequence[Alignment]) -> set[tuple[int, int]]:
    """The leaves and closed sets of elements of which the class follows from the value, as "food" from "apples": values
    that stand in several elements nearly always have the same. Where none stands twice, it may."""
    counts: dict[tuple[int, int], dict[str, Counter[str]]] = {}
    for pair, alignment in zip(pairs, alignments, strict=True):
        for span, classes in _classes_of(alignment).items():
            surface = pair.text[span.start : span.end].casefold()
            for rule, value in classes:
                counts.setdefault((span.rule, rule), {}).setdefault(surface, Counter())[value] += 1
    out = set()
    for both, of_surface in counts.items():
        several = [classes for classes in of_surface.values() if classes.total() > 1]
        same = sum(max(classes.values()) for classes in several)
        if same >= FOLLOWS * sum(classes.total() for classes in several):
            out.add(both)
    return out


def _drop_case(example: Example) -> Example:
    return replace(example, kinds=tuple(tuple(map(drop_case, window)) for window in example.kinds))
