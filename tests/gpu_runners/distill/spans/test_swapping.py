"""The examples of each epoch."""

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


def test_values_of_an_element_with_classes_come_from_elements_of_the_same_classes(base: Base) -> None:
    """Apples are food and saws are not: a saw in the place of apples would teach the wrong class."""
    names = {"food": ("apples", "pears", "beans"), "tool": ("saws", "files", "drills")}
    kinds = [(kind, other) for kind in names for other in names]
    pairs = []
    for i in range(48):
        lines = [{"item": names[kind][(i + k) % 3], "kind": kind} for k, kind in enumerate(kinds[i % 4])]
        pairs.append((f"send {lines[0]['item']} and {lines[1]['item']}", {"lines": lines}))
    item = {"type": "object", "properties": {"item": {"type": "string"}, "kind": {"enum": list(names)}}}
    schema = {"type": "object", "properties": {"lines": {"type": "array", "items": item}}, "required": ["lines"]}
    plan = learn_plan(schema, pairs)
    read, leaves, tokenizer = (
        read_pairs(span_dataset(pairs, schema)),
        Assembler(schema, plan).leaves,
        SpanTokenizer(base, max_tokens=64),
    )
    aligned = align_pairs(plan, leaves, read)
    tokens = tokenizer.read([pair.text for pair in read])
    clean = [example_of(plan, leaves, *parts) for parts in zip(read, aligned, tokens, strict=True)]
    (rule,) = plan.element_rules()
    class_of = {}  # by the id of a noun's first token, as the pairs have it
    for example in clean:
        for (window, place), number in zip(example.places, example.elements[rule], strict=True):
            if number != NOT_ASKED:
                class_of[example.windows[window][place]] = number
    swapping = Swapping(plan, leaves, tokenizer, read, aligned, clean, share=1.0, seed=7)
    swapped = [one for epoch in range(3) for one in swapping.of_epoch(epoch)]
    assert sum(one.windows != clean[i % 48].windows for i, one in enumerate(swapped)) > 48
    for example in swapped:
        for (window, place), number in zip(example.places, example.elements[rule], strict=True):
            assert number in (NOT_ASKED, class_of.get(example.windows[window][place]))
