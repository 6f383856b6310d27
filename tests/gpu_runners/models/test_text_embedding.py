"""The embedder of `kolm select` and of the runner's select job: the service's rows, whichever engine gives them."""

import numpy as np
import pytest

from gpu_runners.errors import JobFailed
from gpu_runners.models import text_embedding
from gpu_runners.models.text_embedding import MAX_CHARACTERS, load_text_embedder

TEXTS = [
    "i want my money back",
    "I want my money back",
    "ünïcode 😀 and a lone surrogate \ud83d",
    "  spaced   out  ",
    "x",
    "where is my parcel, it was due last week " * 60,
    "i want my money back",
]


@pytest.mark.parametrize("torch_from", [0, 10**9], ids=["torch", "numpy"])
def test_the_rows_are_those_of_the_services_embedder(monkeypatch: pytest.MonkeyPatch, torch_from: int) -> None:
    from workers.embedding.sentence import load_embedder

    monkeypatch.setattr(text_embedding, "TORCH_FROM", torch_from)
    clean = [text for text in TEXTS if text.isprintable()]
    assert len(clean) == len(TEXTS) - 1  # sentence-transformers takes no lone surrogate
    ours, theirs = load_text_embedder(n_texts=len(clean)), load_embedder()
    rows = ours.embed(clean)
    assert rows.dtype == np.float32
    assert np.abs(rows - theirs.embed(clean)).max() < 1e-5
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)
    assert ours.identity == theirs.identity


def test_few_texts_go_through_numpy_and_many_through_torch() -> None:
    few, many = load_text_embedder(n_texts=10), load_text_embedder(n_texts=text_embedding.TORCH_FROM)
    assert type(few._engine).__name__ == "NumpyBert"
    assert np.abs(few.embed(TEXTS) - many.embed(TEXTS)).max() < 1e-5


def test_texts_that_the_model_reads_alike_share_a_row_to_the_last_bit_and_are_counted_once() -> None:
    told: list[tuple[int, int]] = []
    rows = load_text_embedder().embed(TEXTS, on_progress=lambda done, total: told.append((done, total)))
    assert rows[0].tobytes() == rows[1].tobytes() == rows[-1].tobytes()
    assert told[-1] == (5, 5)


def test_progress_moves_batch_by_batch() -> None:
    told: list[int] = []
    texts = [f"order number {i} has not come" for i in range(150)]
    load_text_embedder().embed(texts, on_progress=lambda done, _: told.append(done))
    assert told == [64, 128, 150]


def test_no_texts_are_no_rows() -> None:
    assert load_text_embedder().embed([]).shape == (0, 384)


def test_what_lies_beyond_the_models_reach_does_not_count() -> None:
    embedder = load_text_embedder()
    long = "refund " * (MAX_CHARACTERS // 7 + 10)
    rows = embedder.embed([long, long + "and quite another matter"])
    assert np.array_equal(rows[0], rows[1])


def test_a_base_that_is_not_here_is_named() -> None:
    with pytest.raises(JobFailed) as caught:
        load_text_embedder(name="../secrets")
    assert caught.value.code == "unknown_base"
