"""Datasets are read strictly; what does not fit is left out whole, and counted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.distill.causal.dataset import Example, encode, read_rows, split
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase
from tests.gpu_runners.distill.causal.small_answers import SYSTEM, jsonl, rows

GOOD = {"input": "a", "output": "b", "weight": 1.0}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n \n",
        b"\xff\xfe",
        b"[1]",
        b"{not json}",
        json.dumps({"input": "a", "output": "b"}).encode(),
        json.dumps(GOOD | {"more": 1}).encode(),
        json.dumps(GOOD | {"output": {"a": 1}}).encode(),
        json.dumps(GOOD | {"input": None}).encode(),
        json.dumps(GOOD | {"weight": 0}).encode(),
        json.dumps(GOOD | {"weight": True}).encode(),
        json.dumps(GOOD | {"weight": float("nan")}).encode(),
        json.dumps(GOOD | {"weight": "1"}).encode(),
    ],
)
def test_what_is_no_row_is_refused(line: bytes) -> None:
    with pytest.raises(JobFailed) as failure:
        read_rows(line)
    assert failure.value.code == "invalid_dataset"


def test_an_example_is_prompt_then_answer_then_its_end(small_base: CausalBase) -> None:
    encoded = encode(read_rows(jsonl(rows(3))), base=small_base, system=SYSTEM, max_tokens=200)
    for example, row in zip(encoded.examples, rows(3), strict=True):
        prompt, answer = example.ids[: example.n_prompt], example.ids[example.n_prompt :]
        assert small_base.tokenizer.decode(prompt).endswith(row["input"] + "<|end|><|assistant|>")
        assert small_base.tokenizer.decode(answer) == row["output"] + "<|end|>"
        assert answer[-1] == small_base.eos_ids[0]


def test_too_long_examples_are_left_out_whole_and_counted(small_base: CausalBase) -> None:
    data = [*rows(4), rows(1)[0] | {"output": "null " * 200}]
    encoded = encode(read_rows(jsonl(data)), base=small_base, system=SYSTEM, max_tokens=150)
    assert (len(encoded.examples), encoded.n_too_long, encoded.limit) == (4, 1, 150)


def test_the_bases_context_bounds_what_an_example_may_have(small_base: CausalBase) -> None:
    encoded = encode(read_rows(jsonl(rows(4))), base=small_base, system=SYSTEM, max_tokens=100_000)
    assert encoded.limit == small_base.context


def test_nothing_left_to_train_is_refused_and_says_how_long_they_are(small_base: CausalBase) -> None:
    with pytest.raises(JobFailed, match=r"fits into 8 tokens.*the shortest has \d+") as failure:
        encode(read_rows(jsonl(rows(4))), base=small_base, system=SYSTEM, max_tokens=8)
    assert failure.value.code == "nothing_to_train"


def _examples(texts: list[str]) -> list[Example]:
    return [Example(text=text, ids=(1, 2), n_prompt=1, weight=1.0) for text in texts]


@given(st.lists(st.text(max_size=3), max_size=60), st.floats(0, 0.5), st.integers(-(2**40), 2**40))
def test_a_split_parts_by_input_and_leaves_enough_to_train(texts: list[str], share: float, seed: int) -> None:
    train, held = split(_examples(texts), share=share, seed=seed)
    assert len(train) + len(held) == len(texts)
    assert not {e.text for e in train} & {e.text for e in held}
    assert len({e.text for e in train}) >= min(3, len(set(texts)))
    assert bool(held) == (share > 0 and len(set(texts)) >= 4)


def test_no_answer_is_validated_on_whose_input_trains_with_another_answer(small_base: CausalBase) -> None:
    data = [row | {"output": answer, "weight": 0.5} for row in rows(12) for answer in ("null", row["output"])]
    encoded = encode(read_rows(jsonl(data)), base=small_base, system=SYSTEM, max_tokens=200)
    train, held = split(encoded.examples, share=0.25, seed=7)
    assert (len(train), len(held)) == (18, 6)
    assert not {example.text for example in train} & {example.text for example in held}


def test_a_pair_more_moves_at_most_one_other() -> None:
    texts = [f"text {i}" for i in range(100)]
    before = {e.text for e in split(_examples(texts), share=0.1, seed=7)[1]}
    after = {e.text for e in split(_examples([*texts, "one more"]), share=0.1, seed=7)[1]}
    assert len(before - after) <= 1
