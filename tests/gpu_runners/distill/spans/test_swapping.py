"""The examples of each epoch."""

from backend.domain.extraction.assembling import Assembler
from gpu_runners.distill.spans.dataset import Example, align_pairs, example_of, read_pairs
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
