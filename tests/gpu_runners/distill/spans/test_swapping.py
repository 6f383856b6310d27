"""The examples of each epoch."""

import random

from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.learning import learn_plan
from gpu_runners.distill.spans.dataset import NOT_ASKED, Example, align_pairs, example_of, read_pairs
from gpu_runners.distill.spans.swapping import LOWERED, Swapping
from gpu_runners.models.bases import Base
from gpu_runners.models.spans.tokens import SpanTokenizer
from tests.gpu_runners.small_spans import SCHEMA, span_dataset, span_job, span_pairs


def epochs(base: Base, *, share: float) -> tuple[list[Example], list[list[Example]]]:
    """Sixty mails in capitals, and what two epochs make of them."""
    _, _, plan = span_job(span_pairs(60))
    read = read_pairs(span_dataset([(text.upper(), answer) for text, answer in span_pairs(60)]))
    leaves, tokenizer = Assembler(SCHEMA, plan).leaves, SpanTokenizer(base, max_tokens=64)
    aligned = align_pairs(plan, leaves, read)
    tokens = tokenizer.read([pair.text for pair in read])
    clean = [example_of(plan, leaves, *parts) for parts in zip(read, aligned, tokens, strict=True)]
    swapping = Swapping(plan, leaves, tokenizer, read, aligned, clean, share=share, seed=7)
    return clean, [swapping.of_epoch(0), swapping.of_epoch(0), swapping.of_epoch(1)]


def test_a_share_of_the_texts_trains_without_capitals_other_ones_in_each_epoch(base: Base) -> None:
    clean, (first, again, second) = epochs(base, share=0.0)
    assert first == again != second
    assert [one.windows for one in first] == [one.windows for one in clean]
    lowered = sum(one.kinds != other.kinds for one, other in zip(clean, first, strict=True))
    assert abs(lowered / len(clean) - LOWERED) < 0.15


def test_a_share_of_the_texts_has_values_of_others(base: Base) -> None:
    clean, (first, again, second) = epochs(base, share=0.5)
    assert first == again != second
    changed = sum(one.windows != other.windows for one, other in zip(clean, first, strict=True))
    assert 0 < changed <= 45


Line = dict[str, str]


def classes_by_word(base: Base, lines_of: list[tuple[Line, Line]]) -> tuple[list[set[int]], list[set[int]]]:
    """By word, the classes that its elements have in the pairs, and in a dozen epochs."""
    pairs = [(f"send {one['item']} and {other['item']}", {"lines": [one, other]}) for one, other in lines_of]
    item = {"type": "object", "properties": {"item": {"type": "string"}, "kind": {"enum": ["food", "tool"]}}}
    schema = {"type": "object", "properties": {"lines": {"type": "array", "items": item}}, "required": ["lines"]}
    plan, read = learn_plan(schema, pairs), read_pairs(span_dataset(pairs, schema))
    leaves, tokenizer = Assembler(schema, plan).leaves, SpanTokenizer(base, max_tokens=64)
    aligned = align_pairs(plan, leaves, read)
    tokens = tokenizer.read([pair.text for pair in read])
    clean = [example_of(plan, leaves, *parts) for parts in zip(read, aligned, tokens, strict=True)]
    swapping = Swapping(plan, leaves, tokenizer, read, aligned, clean, share=1.0, seed=7)
    swapped = [swapping.of_epoch(epoch) for epoch in range(12)]
    assert all(sum(a.windows != b.windows for a, b in zip(one, clean, strict=True)) > 16 for one in swapped)
    (rule,) = plan.element_rules()
    sides = []
    for examples in (clean, [one for epoch in swapped for one in epoch]):
        by_word: dict[int, set[int]] = {}
        for example in examples:
            for (window, place), number in zip(example.places, example.elements[rule], strict=True):
                if number != NOT_ASKED:
                    by_word.setdefault(example.windows[window][place], set()).add(number)
        sides.append([by_word[word] for word in sorted(by_word)])
    return sides[0], sides[1]


def test_a_class_that_follows_from_a_value_stays_with_it(base: Base) -> None:
    """Apples are food and saws are not: a saw in the place of apples would teach the wrong class."""
    names = {"food": ("apples", "pears", "beans"), "tool": ("saws", "files", "drills")}
    rng = random.Random(1)
    lines = [{"item": item, "kind": kind} for kind, items in names.items() for item in items]
    clean, swapped = classes_by_word(base, [tuple(rng.sample(lines, 2)) for _ in range(48)])  # type: ignore[misc]
    assert clean == swapped
    assert {len(classes) for classes in clean} == {1}


def test_a_class_that_follows_from_no_value_goes_with_all_of_them(base: Base) -> None:
    rng = random.Random(1)
    nouns = ("apples", "pears", "beans", "saws", "files")
    pairs = [[{"item": item, "kind": rng.choice(("food", "tool"))} for item in rng.sample(nouns, 2)] for _ in range(48)]
    pairs[0][0] = {"item": "drills", "kind": "food"}  # once, so of one kind
    clean, swapped = classes_by_word(base, [(one, other) for one, other in pairs])
    assert sorted(map(len, clean)) == [1, 2, 2, 2, 2, 2]
    assert {len(classes) for classes in swapped} == {2}
