"""The pairs that train, cut where cross-validation on them says so."""

from uuid import UUID

import numpy as np
import pytest

from backend.compiles.models import Candidate, Slice
from backend.domain.answers.candidates import text_key
from backend.domain.labeling.linear_head import Floats
from backend.domain.spec.parsing import Spec, parse_spec
from tests.compile_factories import LABELS, small_spec
from workers.training.pair_cuts import LEAST_COMPARED, MOST_COMPARED, cut_message, cut_pairs
from workers.training.training_set import TrainingSet, training_set

SLICE = Slice(id=UUID(int=1), position=0, name="all", share_ppm=1_000_000, n_candidates=400, k_requested=400)
N = 240


def spec_of(**sampling: object) -> Spec:
    return parse_spec(small_spec(sampling={"n_candidates": 400, "k_select": 400, **sampling}))


def points(n: int, seed: int) -> tuple[Floats, list[bool]]:
    """Two easy clusters in 64 dimensions, as unit rows, and which of them each row is of."""
    rng = np.random.default_rng(seed)
    is_first = [bool(one) for one in rng.random(n) < 0.5]
    rows = 0.5 * rng.standard_normal((n, 64))
    rows[:, :4] += np.where(is_first, 2.5, -2.5)[:, None]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), is_first


def pairs(n: int, *, wrong: float, seed: int = 1) -> list[Candidate]:
    """Labelled candidates, a share of them wrong."""
    rows, is_first = points(n, seed)
    is_wrong = np.random.default_rng(seed + 1).random(n) < wrong
    return [
        Candidate(
            slice_id=SLICE.id,
            text=f"text {i}",
            text_key=text_key(f"text {i}"),
            embedding=row.astype(np.float32).tobytes(),
            label=LABELS[int(first != flipped)],
            agreement_ppm=1_000_000,
        )
        for i, (row, first, flipped) in enumerate(zip(rows, is_first, is_wrong, strict=True))
    ]


def embed(texts: list[str]) -> np.ndarray:
    return points(len(texts), seed=9)[0].astype(np.float32)


GOLD = [{"input": f"gold {i}", "output": LABELS[int(first)]} for i, first in enumerate(points(12, seed=9)[1])]


def made(labeled: list[Candidate], **sampling: object) -> tuple[TrainingSet, TrainingSet]:
    """All pairs, and those that are left."""
    spec = spec_of(**sampling)
    before = training_set(spec, [SLICE], labeled, GOLD, [])
    return before, cut_pairs(spec, labeled, before, embed)


def test_wrong_labels_are_left_out_and_the_figures_say_why() -> None:
    labeled, right = pairs(N, wrong=0.3), {row.text: row.label for row in pairs(N, wrong=0.0)}
    before, after = made(labeled)
    assert after.cuts is not None
    (chosen,) = [one for one in after.cuts if one["chosen"]]
    left_out = [row for row in before.rows if row["input"] not in after.texts]
    assert sum(row["label"] != right[row["input"]] for row in left_out) > 0.4 * len(left_out) > 0, "0.3 are wrong"
    assert chosen["gain_ppm"] > chosen["se_ppm"] > 0
    assert len(after.rows) == chosen["n"] < len(before.rows) == after.cuts[0]["n"]
    assert {row["input"] for row in GOLD} <= after.texts < before.texts
    assert "; cross-validated" in cut_message(after.cuts)


def test_right_labels_all_train_and_the_comparison_is_there() -> None:
    before, after = made(pairs(N, wrong=0.0))
    assert after.rows == before.rows
    assert after.cuts is not None
    assert [one["name"] for one in after.cuts if one["chosen"]] == ["all"]
    assert len(after.cuts) == 6
    assert cut_message(after.cuts) == ""


@pytest.mark.parametrize(
    "n", [LEAST_COMPARED - len(GOLD) - 1, pytest.param(MOST_COMPARED - len(GOLD) + 1, marks=pytest.mark.nightly)]
)
def test_too_few_pairs_and_too_many_are_not_compared(n: int) -> None:
    before, after = made(pairs(n, wrong=0.3))
    assert after is before
    assert after.cuts is None


def test_a_spec_that_names_how_many_train_has_them() -> None:
    before, after = made(pairs(N, wrong=0.3), k_distill=210)
    assert after is before


def test_no_kept_pair_changes_but_in_its_weight() -> None:
    before, after = made(pairs(N, wrong=0.3))
    known = {row["input"]: row for row in before.rows}
    assert all(row | {"weight": 1.0} == known[row["input"]] for row in after.rows)
    assert all(row["weight"] > 0 for row in after.rows)
