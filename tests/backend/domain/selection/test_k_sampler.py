"""KSampler: what scikit-learn's tools expect of an estimator, and that it is `select` and nothing else."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils import get_tags

from backend.domain.errors import InvalidInput
from backend.domain.selection.k_sampler import KSampler, KSamplerError
from backend.domain.selection.select import select

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 8))
SCORE = RNG.random(60)


def test_fit_predict_is_select_as_a_mask() -> None:
    sampler = KSampler(k=12, method="two_step", score_floor=0.25)
    mask = sampler.fit_predict(X, SCORE)
    selection = select(X, SCORE.tolist(), k=12, method="two_step", score_floor=0.25)
    assert mask.dtype == bool
    assert mask.shape == (60,)
    assert np.flatnonzero(mask).tolist() == sorted(selection.picks)
    assert sampler.picks_.tolist() == list(selection.picks)
    assert sampler.report_ == selection.report
    assert sampler.n_features_in_ == 8


def test_labels_are_the_clusters_of_the_kept_rows() -> None:
    sampler = KSampler(k=12, method="two_step").fit(X, SCORE)
    kept = sampler.labels_[sampler.mask_]
    assert sorted(kept.tolist()) == list(range(12))  # two_step keeps one of each cluster
    assert (sampler.labels_[~sampler.mask_] == -1).all()


@given(n=st.integers(1, 40), share=st.sampled_from([1 / 3, 0.1, 0.25, 0.5, 0.9]))
def test_a_share_is_rounded_up(n: int, share: float) -> None:
    sampler = KSampler(k=share, method="top_k").fit(X[:n], SCORE[:n])
    assert len(sampler.picks_) == math.ceil(n * share - 1e-9)


def test_by_default_a_third_is_kept_and_no_score_is_needed() -> None:
    assert KSampler().fit_predict(X).sum() == 20


def test_traffic_is_represented() -> None:
    sampler = KSampler(k=12, is_traffic=True).fit(X, SCORE)
    assert sampler.report_.method == "representative"
    assert sampler.picks_.tolist() == list(select(X, SCORE.tolist(), k=12, method="representative").picks)


def test_labels_share_out_k_unless_told_not_to() -> None:
    labels = ["a"] * 50 + ["b"] * 10
    stratified = KSampler(k=12, method="top_k").fit_predict(X, SCORE, labels)
    assert (stratified[:50].sum(), stratified[50:].sum()) == (10, 2)
    as_numbers = KSampler(k=12, method="top_k").fit_predict(X, SCORE, np.array([0] * 50 + [1] * 10))
    assert as_numbers.tolist() == stratified.tolist()
    best = set(np.argsort(-SCORE)[:12].tolist())
    free = KSampler(k=12, method="top_k", stratify=False).fit_predict(X, SCORE, labels)
    assert set(np.flatnonzero(free).tolist()) == best


def test_clone_and_set_params_carry_every_parameter_verbatim() -> None:
    floor = 0.2
    sampler = KSampler(k=5, method="diverse", score_floor=floor, diversity_lambda=math.inf)
    copy = clone(sampler)
    assert copy is not sampler
    assert copy.get_params() == sampler.get_params()
    assert copy.score_floor is floor
    assert copy.set_params(k=7, penalty="sum") is copy
    assert (copy.k, copy.penalty) == (7, "sum")
    with pytest.raises(ValueError, match="no parameter 'lambda_'"):
        copy.set_params(lambda_=1.0)


def test_a_bad_parameter_is_refused_in_fit_and_not_before() -> None:
    sampler = KSampler(k=-1, method="best")
    assert sampler.k == -1
    with pytest.raises(ValueError, match="K must be a whole number"):
        sampler.fit(X, SCORE)


@pytest.mark.parametrize(
    ("x", "score", "params"),
    [
        (X, SCORE[:3], {}),
        (X[0], SCORE, {}),
        ([[1.0, 2.0], [3.0]], [1, 2], {}),
        ([["a", "b"]], [1], {}),
        (X, np.full(60, np.nan), {}),
        (np.full((2, 3), np.inf), [1, 2], {}),
        (X, SCORE, {"k": 2.5}),
        (X, SCORE, {"k": True}),
        (X, SCORE, {"diversity_lambda": math.nan}),
        (X, SCORE, {"method": "best"}),
        (X, SCORE, {"score_floor": 1.0}),
    ],
)
def test_what_cannot_be_selected_from_is_a_value_error_of_the_domain(
    x: object, score: object, params: dict[str, object]
) -> None:
    with pytest.raises(KSamplerError) as caught:
        KSampler(**params).fit(x, score)  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, InvalidInput)
    assert caught.value.message


def test_it_is_the_last_step_of_a_pipeline_and_a_grid_sets_its_parameters() -> None:
    pipeline = make_pipeline(Normalizer(), KSampler(method="diverse"))
    kept = {}
    for params in ParameterGrid({"ksampler__k": [5, 9], "ksampler__diversity_lambda": [0.0, 1.0]}):
        mask = clone(pipeline).set_params(**params).fit_predict(X, SCORE)
        kept[params["ksampler__k"], params["ksampler__diversity_lambda"]] = set(np.flatnonzero(mask).tolist())
    assert {key: len(value) for key, value in kept.items()} == {(5, 0.0): 5, (5, 1.0): 5, (9, 0.0): 9, (9, 1.0): 9}
    assert kept[9, 0.0] == set(np.argsort(-SCORE)[:9].tolist())
    assert kept[9, 1.0] != kept[9, 0.0]
    assert "KSampler" in pipeline._repr_html_()  # what a notebook shows
    assert get_tags(KSampler()).target_tags.required is False


def test_its_repr_names_what_was_changed() -> None:
    assert repr(KSampler()) == "KSampler()"
    assert repr(KSampler(k=80, method="dpp")) == "KSampler(k=80, method='dpp')"


def test_it_needs_no_scikit_learn() -> None:
    script = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from backend.domain.selection.k_sampler import KSampler\n"
        "print(KSampler(k=1, method='top_k').fit_predict([[1, 0], [0, 1]], [0.1, 0.9]).tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[False, True]"
