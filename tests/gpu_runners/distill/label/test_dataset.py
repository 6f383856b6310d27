"""Reading, splitting and batching pairs."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.distill.label.calibration import fit_temperature
from gpu_runners.distill.label.dataset import Pair, batches, read_inputs, read_pairs, split
from gpu_runners.errors import JobFailed

PAIRS = st.lists(
    st.builds(Pair, text=st.text(max_size=6), label=st.integers(0, 3), weight=st.just(1.0)), min_size=1, max_size=60
)


@given(pairs=PAIRS, share=st.floats(0, 0.5), seed=st.integers(0, 2**40))
def test_a_split_loses_nothing_and_keeps_every_label_in_training(pairs: list[Pair], share: float, seed: int) -> None:
    train, held = split(pairs, share=share, seed=seed)
    assert Counter(train) + Counter(held) == Counter(pairs)
    assert {pair.label for pair in train} == {pair.label for pair in pairs}
    assert not {(p.text, p.label) for p in train} & {(p.text, p.label) for p in held}


@given(pairs=PAIRS, seed=st.integers(0, 9))
def test_who_is_held_does_not_depend_on_the_order(pairs: list[Pair], seed: int) -> None:
    once, again = (split(order, share=0.3, seed=seed)[1] for order in (pairs, pairs[::-1]))
    assert Counter(once) == Counter(again)


@given(lengths=st.lists(st.integers(1, 99), min_size=1, max_size=200), size=st.integers(1, 40), epoch=st.integers(0, 5))
def test_an_epoch_visits_every_pair_once_in_the_expected_number_of_batches(
    lengths: list[int], size: int, epoch: int
) -> None:
    found = batches(lengths, size=size, seed=7, epoch=epoch)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    assert len(found) == -(-len(lengths) // size)
    again = batches(lengths, size=size, seed=7, epoch=epoch)
    assert all(np.array_equal(one, two) for one, two in zip(found, again, strict=True))


def test_bucketing_pads_less_than_random_batches() -> None:
    lengths = np.random.default_rng(1).integers(4, 100, size=512).tolist()

    def padding(groups: list[np.ndarray]) -> int:  # type: ignore[type-arg]
        return sum(max(lengths[i] for i in g) * len(g) - sum(lengths[i] for i in g) for g in groups)

    plain = np.array_split(np.random.default_rng(2).permutation(512), 32)
    assert padding(batches(lengths, size=16, seed=7, epoch=0)) < padding(plain) / 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\n",
        b"[1]\n",
        b'{"input": "a", "label": "x"}\n',
        b'{"input": "a", "label": "z", "weight": 1}\n',
        b'{"input": 1, "label": "x", "weight": 1}\n',
        b'{"input": "a", "label": "x", "weight": 0}\n',
        b'{"input": "a", "label": "x", "weight": true}\n',
        b'{"input": "a", "label": "x", "weight": NaN}\n',
        b'{"input": "a", "label": "x", "weight": 1}\n',  # none for y
    ],
)
def test_a_dataset_that_is_not_one_is_refused(data: bytes) -> None:
    with pytest.raises(JobFailed) as caught:
        read_pairs(data, ["x", "y"])
    assert caught.value.code == "invalid_dataset"


def test_inputs_keep_their_order_and_line_separators_inside_texts() -> None:
    texts = ["b", "a\u2028c", ""]
    data = "\n".join(json.dumps({"input": text}, ensure_ascii=False) for text in texts).encode()
    assert read_inputs(data) == texts


def test_a_temperature_cools_doubt_and_warms_overconfidence() -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 4, size=2000)
    logits = rng.normal(size=(2000, 4))
    logits[np.arange(2000), labels] += 2.0  # by construction the right confidences are softmax(2 * logits)
    right, _ = fit_temperature(logits, labels)
    assert right == pytest.approx(0.5, abs=0.1)
    assert fit_temperature(logits * 6, labels)[0] == pytest.approx(right * 6, rel=0.05)


def test_twenty_right_answers_do_not_make_certainty() -> None:
    labels = np.arange(20) % 4
    temperature, _ = fit_temperature(np.eye(4)[labels] * 3.0, labels)
    assert 0.4 < temperature < 1
