"""Noise in the texts that train."""

from backend.domain.extraction.assembling import Assembler
from gpu_runners.distill.spans.dataset import Example, align_pairs, example_of, read_pairs
from gpu_runners.distill.spans.noise import UNCASED, with_noise
from gpu_runners.models.bases import Base
from gpu_runners.models.spans.tokens import SpanTokenizer
from tests.gpu_runners.small_spans import SCHEMA, span_dataset, span_job, span_pairs


def examples(tokenizer: SpanTokenizer) -> list[Example]:
    pairs = [(text.upper(), answer) for text, answer in span_pairs(60)]
    _, _, plan = span_job(span_pairs(60))
    read = read_pairs(span_dataset(pairs))
    leaves = Assembler(SCHEMA, plan).leaves
    tokens = tokenizer.read([pair.text for pair in read])
    aligned = align_pairs(plan, leaves, read)
    return [example_of(plan, leaves, *parts) for parts in zip(read, aligned, tokens, strict=True)]


def test_a_share_of_the_tokens_is_masked_and_no_special_token_is(base: Base) -> None:
    tokenizer = SpanTokenizer(base, max_tokens=64)
    clean = examples(tokenizer)
    noisy = with_noise(lambda _: clean, mask_share=0.2, mask_id=tokenizer.mask_id, seed=7)(0)
    windows = [(one.windows, other.windows) for one, other in zip(clean, noisy, strict=True)]
    pairs = [pair for one, other in windows for pair in zip(one, other, strict=True)]
    assert all((a[0], a[-1]) == (b[0], b[-1]) for a, b in pairs)
    changed = [b for one, other in pairs for a, b in zip(one, other, strict=True) if a != b]
    assert set(changed) == {tokenizer.mask_id}
    n_tokens = sum(len(one.places) for one in clean)
    assert 0.15 < len(changed) / n_tokens < 0.25
    assert [one.tags for one in noisy] == [one.tags for one in clean]


def test_a_share_of_the_texts_has_no_capitals(base: Base) -> None:
    clean = examples(SpanTokenizer(base, max_tokens=64))
    noisy = with_noise(lambda _: clean, mask_share=0.1, mask_id=None, seed=7)(0)
    lowered = sum(one.kinds != other.kinds for one, other in zip(clean, noisy, strict=True))
    assert abs(lowered / len(clean) - UNCASED) < 0.15
    assert [one.windows for one in noisy] == [one.windows for one in clean]


def test_the_noise_of_an_epoch_follows_from_the_seed_and_its_number(base: Base) -> None:
    tokenizer = SpanTokenizer(base, max_tokens=64)
    clean = examples(tokenizer)
    noisy = [
        with_noise(lambda _: clean, mask_share=0.1, mask_id=tokenizer.mask_id, seed=seed)(epoch)
        for seed, epoch in ((7, 0), (7, 0), (7, 1), (8, 0))
    ]
    assert noisy[0] == noisy[1]
    assert noisy[0] not in noisy[2:]
