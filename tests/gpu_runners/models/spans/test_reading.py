"""From texts to tokens, and from logits to spans."""

from itertools import product

import numpy as np
import pytest

from backend.domain.extraction.plan import ExtractionPlan, LeafRule, Way
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_runtimes import TorchRuntime, load_runtime
from gpu_runners.models.spans.adapter import from_bytes, head_sizes
from gpu_runners.models.spans.decoding import read_logits
from gpu_runners.models.spans.forward import SpanForward
from gpu_runners.models.spans.tokens import SpanTokenizer
from gpu_runners.models.spans.viterbi import likeliest
from tests.gpu_runners.small_spans import TrainedSpans


def is_allowed(path: tuple[int, ...]) -> bool:
    """A value goes on only where it began."""
    return all(tag == 0 or tag % 2 or before in (tag - 1, tag) for before, tag in zip((0, *path), path, strict=False))


@pytest.mark.parametrize("seed", range(20))
def test_the_likeliest_tags_are_those_that_trying_all_of_them_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(1, 6)), 5
    scores = rng.normal(size=(n, width)).astype(np.float32)
    paths = [path for path in product(range(width), repeat=n) if is_allowed(path)]
    best = max(paths, key=lambda path: float(sum(scores[i, tag] for i, tag in enumerate(path))))
    assert tuple(likeliest(scores).tolist()) == best


def test_a_leaf_that_is_always_there_has_a_spare_span() -> None:
    rules = (LeafRule(path="/a", way=Way.COPIED, is_always=True), LeafRule(path="/b", way=Way.COPIED))
    plan = ExtractionPlan(rules=rules, layers=((0, 1),), fallback={}, n_pairs=1, n_values=1, n_right=1)
    logits = np.array([[9, 1, 0, 0, 0], [9, 3, 0, 0, 0], [9, 0, 0, 0, 0]], dtype=np.float32)
    reading = read_logits(plan, {"tags.0": logits}, [(0, 2), (3, 5), (6, 8)])
    (spare,) = reading.spans
    assert (spare.rule, spare.start, spare.end, spare.is_spare) == (0, 3, 5, True)


def test_a_long_text_is_read_in_windows_that_overlap_and_every_token_counts_once(base: Base) -> None:
    text = " ".join(f"word{n} zürich" for n in range(300))
    tokenizer = SpanTokenizer(base, max_tokens=64, prefix="query: ")
    (read,) = tokenizer.read([text])
    assert len(read.windows) > 10
    assert max(len(window.ids) for window in read.windows) == 64
    owners = read.owners()
    assert len(owners) == len(read.offsets)
    for token, (number, place) in enumerate(owners):
        window = read.windows[number]
        assert window.tokens.start + place - window.first == token
    assert text[read.offsets[-1][0] : read.offsets[-1][1]] in text.split()[-1]
    (empty,) = tokenizer.read([""])
    assert (empty.offsets, len(empty.windows)) == ((), 1)


def test_offsets_are_code_points_of_the_text_as_it_was_sent(base: Base) -> None:
    text = "😀 I\u0307zmir Cafe\u0301, \ud800 ＡＢ１２"
    (read,) = SpanTokenizer(base, max_tokens=64).read([text])
    assert all(0 <= start <= end <= len(text) for start, end in read.offsets)
    assert read.offsets[-1][1] == len(text)


def test_windows_agree_with_one_pass_where_a_text_fits_both(trained_spans: TrainedSpans, base: Base) -> None:
    has_lists = True
    adapter = from_bytes(trained_spans.blob, head_sizes(trained_spans.plan, has_lists=has_lists))
    body = load_runtime(base).body(adapter.lora, rank=8, alpha=16)
    forward = SpanForward(body, adapter.heads)
    texts = ["please buy 3 pens", "please cancel 4 wool hats and 12 lamps in Rome"]
    tokenizer = SpanTokenizer(base, max_tokens=64)
    together = list(forward.logits(tokenizer.read(texts)))
    alone = [next(iter(forward.logits(tokenizer.read([text])))) for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one.keys() == other.keys()
        for name, logits in one.items():
            np.testing.assert_allclose(logits, other[name], atol=2e-4)


def test_numpy_and_torch_compute_the_same_logits(trained_spans: TrainedSpans, base: Base) -> None:
    adapter = from_bytes(trained_spans.blob, head_sizes(trained_spans.plan, has_lists=True))
    tokens = SpanTokenizer(base, max_tokens=64).read(["please buy 3 pens in New York, quickly"])
    sides = [
        next(iter(SpanForward(runtime.body(adapter.lora, rank=8, alpha=16), adapter.heads).logits(tokens)))
        for runtime in (load_runtime(base), TorchRuntime(base))
    ]
    for name, logits in sides[0].items():
        np.testing.assert_allclose(logits, sides[1][name], atol=1e-3)


def barring() -> ExtractionPlan:
    kind = LeafRule(path="/kind", way=Way.CLOSED, choices=("visit", "none"), bars=((), (1,)))
    city = LeafRule(path="/city", way=Way.COPIED)
    return ExtractionPlan(rules=(kind, city), layers=((1,),), fallback={}, n_pairs=1, n_values=1, n_right=1)


@pytest.mark.parametrize(
    ("odds", "tag", "kind", "n_spans"),
    [
        (0.5, 6.0, "visit", 1),  # a plain city overrules a class that was a little likelier
        (0.5, -6.0, "none", 0),
        (9.0, 1.0, "none", 0),  # a plain class overrules a doubtful city
    ],
)
def test_a_class_and_the_tags_that_it_allows_are_chosen_together(
    odds: float, tag: float, kind: str, n_spans: int
) -> None:
    logits = {
        "classes.0": np.array([0.0, odds], dtype=np.float32),
        "tags.0": np.array([[6, 0, 0], [0, tag, 0]], dtype=np.float32),
    }
    reading = read_logits(barring(), logits, [(0, 2), (3, 7)])
    assert reading.classes[0].value == kind
    assert len(reading.spans) == n_spans


def test_a_word_is_read_whole_or_not_at_all() -> None:
    city = LeafRule(path="/city", way=Way.COPIED)
    plan = ExtractionPlan(
        rules=(city,), layers=((0,),), fallback={}, n_pairs=1, n_values=1, n_right=1, whole_words=True
    )
    logits = {"tags.0": np.array([[0, 4, 0], [1, 0, 0], [5, 0, 0]], dtype=np.float32)}
    offsets, glued = [(0, 2), (2, 4), (5, 6)], (False, True, False)
    (span,) = read_logits(plan, logits, offsets, glued).spans
    assert (span.start, span.end) == (0, 4)


@pytest.mark.parametrize("odds", [0.2, 4.0])
def test_a_whole_answer_is_no_surer_than_the_class_of_an_element_whose_opening_was_not_read(odds: float) -> None:
    plan = ExtractionPlan(
        rules=(
            LeafRule(path="/lines/*/what", way=Way.COPIED),
            LeafRule(path="/lines/*/kind", way=Way.EACH, choices=("a", "b")),
        ),
        layers=((0,),),
        fallback={},
        n_pairs=1,
        n_values=1,
        n_right=1,
    )
    logits = {
        "tags.0": np.array([[0, 9, 0]], dtype=np.float32),
        "opens": np.array([[-1]], dtype=np.float32),
        "elements.1": np.array([[0, odds]], dtype=np.float32),
    }
    reading = read_logits(plan, logits, [(0, 4)])
    (span,) = reading.spans
    assert not span.opens
    assert [one.value for one in span.classes] == ["b"]
    assert reading.confidence <= span.classes[0].confidence < 0.99
