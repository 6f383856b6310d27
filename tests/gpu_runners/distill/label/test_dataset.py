"""Reading and batching pairs."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.distill.label.baseline import fit_head
from gpu_runners.distill.label.dataset import Pair, batches, read_inputs, read_pairs, targets_of
from gpu_runners.errors import JobFailed


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
        b'{"input": "a", "label": "x", "weight": 1, "other": 1}\n',
        *(
            b'{"input": "a", "label": "x", "weight": 1, "targets": %s}\n{"input": "b", "label": "y", "weight": 1}\n'
            % bad
            for bad in (
                b"[]",
                b"{}",
                b"null",
                b'{"x": 1000000, "z": 0}',
                b'{"x": 600000, "y": 300000}',
                b'{"x": 1000000.0}',
                b'{"x": 1100000, "y": -100000}',
                b'{"x": 400000, "y": 600000}',
            )
        ),
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


def test_targets_are_read_and_a_sure_label_is_all_of_its_target() -> None:
    rows = [
        {"input": "a", "label": "x", "weight": 1, "targets": {"x": 700_000, "y": 300_000}},
        {"input": "b", "label": "y", "weight": 0.5},
        {"input": "c", "label": "y", "weight": 1, "targets": {"x": 500_000, "y": 500_000}},
    ]
    pairs = read_pairs("\n".join(map(json.dumps, rows)).encode(), ["x", "y"])
    assert [pair.targets for pair in pairs] == [((0, 700_000), (1, 300_000)), (), ((0, 500_000), (1, 500_000))]
    assert np.allclose(targets_of(pairs, 3), [[0.7, 0.3, 0], [0, 1, 0], [0.5, 0.5, 0]])


def test_a_head_of_soft_targets_is_less_sure_than_one_of_their_labels() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(60, 5)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(int)
    hard = [Pair(text="", label=int(label), weight=1.0) for label in labels]
    soft = [
        Pair(
            text="",
            label=p.label,
            weight=1.0,
            targets=((0, 400_000 + 200_000 * (1 - p.label)), (1, 400_000 + 200_000 * p.label)),
        )
        for p in hard
    ]
    sure, unsure = (fit_head(rows, pairs, n_labels=2) for pairs in (hard, soft))
    assert np.abs(unsure.weight).sum() < np.abs(sure.weight).sum() / 3
    logits = 16 * rows @ unsure.weight.T + unsure.bias
    odds = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    assert np.abs(odds - (0.4 + 0.2 * labels)).mean() < 0.1
