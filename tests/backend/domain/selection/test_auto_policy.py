"""What `auto` reads out of a pool, and what it then takes."""

import numpy as np
import pytest

from backend.domain.selection.auto_policy import AutoChoice, choose
from backend.domain.selection.label_consistency import correlation, label_evidence, z_scores
from backend.domain.selection.options import Method, Options
from backend.domain.selection.select import Beside, select

WIDTH, N_LABELS = 24, 4


def _pool(
    n: int = 160, *, wrong: float = 0.0, spread: float = 0.7, seed: int = 0
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Unit rows around one axis a class, their labels, and which labels are right."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % N_LABELS
    rows = np.eye(WIDTH)[truth] + spread * rng.standard_normal((n, WIDTH)) / np.sqrt(WIDTH)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    is_wrong = rng.permutation(n) < round(wrong * n)
    given = np.where(is_wrong, (truth + 1) % N_LABELS, truth)
    return rows, [f"label {i}" for i in given], ~is_wrong


def _scores(right: np.ndarray, *, known: float, seed: int = 1) -> np.ndarray:
    return known * right + np.random.default_rng(seed).standard_normal(len(right))


def _chosen(rows: np.ndarray, scores: np.ndarray, k: int, labels: list[str] | None = None) -> AutoChoice:
    """The rows of these tests are in no canonical order; it does not matter to them."""
    return choose(rows, scores, k, labels=labels, options=Options(k=k))


def _one_sentence(reason: str) -> bool:
    return reason.endswith(".") and "\n" not in reason and len(reason) < 250


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_where_all_fit_they_are_put_in_order_of_score(n: int) -> None:
    rows = np.eye(4)[:n]
    choice = _chosen(rows, np.arange(n, 0, -1.0), 3)
    assert (choice.method, choice.score_floor) == (Method.TOP_K, 0.0)
    assert _one_sentence(choice.reason)


def test_nothing_asked_for_is_nothing_chosen() -> None:
    assert _chosen(np.eye(4), np.ones(4), 0).method is Method.TOP_K


def test_without_labels_score_and_spread_count() -> None:
    rows, _, right = _pool()
    scores = _scores(right, known=1.0)
    choice = _chosen(rows, scores, 40)
    assert choice.method is Method.DPP
    assert np.array_equal(choice.scores, scores)
    assert _one_sentence(choice.reason)


def test_a_large_pool_without_labels_is_selected_by_the_cheaper_method() -> None:
    rows, scores = np.ones((5_001, 1)), np.arange(5_001, 0, -1.0)
    assert _chosen(rows, scores, 10).method is Method.DIVERSE


def test_scores_of_pass_or_fail_keep_those_that_pass() -> None:
    rows, _, right = _pool(wrong=0.7)
    assert _chosen(rows, right * 1.0, 40).method is Method.DIVERSE
    assert right[list(select(rows, right * 1.0, k=40).picks)].all()


def test_without_labels_and_scores_the_pool_is_represented() -> None:
    rows, _, right = _pool()
    choice = _chosen(rows, np.ones(len(right)), 40)
    assert (choice.method, choice.score_floor) == (Method.REPRESENTATIVE, 0.0)
    assert _one_sentence(choice.reason)


def test_traffic_is_represented_whatever_its_scores_and_labels_say() -> None:
    rows, labels, right = _pool(wrong=0.25)
    for scores in (np.ones(len(right)), _scores(right, known=1.0), np.where(np.arange(len(right)) == 3, 0.2, 1.0)):
        for shown in (None, labels):
            choice = choose(rows, scores, 40, labels=shown, options=Options(k=40, is_traffic=True))
            assert (choice.method, choice.score_floor) == (Method.REPRESENTATIVE, 0.0)
            assert _one_sentence(choice.reason)


def test_traffic_that_fits_as_a_whole_is_put_in_order_of_score() -> None:
    assert choose(np.eye(3), np.ones(3), 3, labels=None, options=Options(k=3, is_traffic=True)).method is Method.TOP_K


def test_labels_that_the_pool_bears_out_set_nobody_aside() -> None:
    rows, labels, right = _pool()
    choice = _chosen(rows, _scores(right, known=0.0), 40, labels)
    assert choice.score_floor == 0.0
    assert _one_sentence(choice.reason)


def test_wrong_labels_are_set_aside_even_where_the_score_is_blind() -> None:
    rows, labels, right = _pool(wrong=0.25)
    scores = _scores(right, known=0.0)
    choice = _chosen(rows, scores, 40, labels)
    n_aside = round(choice.score_floor * len(right))
    aside = np.argsort(choice.scores)[:n_aside]
    assert 0.15 <= choice.score_floor <= 0.5
    assert np.mean(~right[aside]) > 0.7  # a blind draw has a quarter
    assert np.mean(right[list(select(rows, scores, k=40, labels=labels, stratify=False).picks)]) > 0.95


def test_a_good_score_is_listened_to_and_a_useless_one_is_not() -> None:
    rows, labels, right = _pool(n=400, wrong=0.25)
    useful = label_evidence(rows, _scores(right, known=4.0), labels)
    useless = label_evidence(rows, _scores(right, known=0.0), labels)
    assert useful.agreement > 0.4 > 0.15 > abs(useless.agreement)
    assert (
        useful.doubt[~right].mean() - useful.doubt[right].mean()
        > useless.doubt[~right].mean() - useless.doubt[right].mean()
    )


def test_a_score_that_says_what_the_labels_say_is_left_alone() -> None:
    rows, labels, right = _pool(wrong=0.25)
    scores = _scores(right, known=6.0)
    choice = _chosen(rows, scores, 40, labels)
    assert (choice.method, choice.score_floor) == (Method.DPP, 0.0)
    assert np.array_equal(choice.scores, scores)
    assert _one_sentence(choice.reason)


def test_in_a_collapsed_pool_labels_are_judged_only_where_the_score_is_blind() -> None:
    rows, labels, right = _pool(n=60, wrong=0.2)
    copies = np.repeat(np.arange(60), 5)
    rows, labels, right = rows[copies], [labels[i] for i in copies], right[copies]
    assert _chosen(rows, _scores(right, known=1.0), 40, labels).score_floor == 0.0
    assert _chosen(rows, np.zeros(300), 40, labels).score_floor > 0.1


def test_the_noise_is_estimated_within_a_tenth() -> None:
    for wrong in (0.0, 0.1, 0.2, 0.3):
        rows, labels, right = _pool(n=400, wrong=wrong)
        assert label_evidence(rows, _scores(right, known=1.0), labels).noise == pytest.approx(wrong, abs=0.1)


def test_twins_do_not_vouch_for_each_other() -> None:
    """Ten copies of one sentence under one wrong label: the other candidates decide."""
    rows, labels, right = _pool()
    rows, labels = (
        np.vstack([rows, np.repeat(rows[:1], 10, axis=0)]),
        [*labels, *["label 1"] * 10],
    )  # row 0 is of label 0
    doubt = label_evidence(rows, np.zeros(len(rows)), labels).doubt
    assert doubt[-10:].min() > np.quantile(doubt[: len(right)], 0.95)


def test_a_group_left_out_is_predicted_as_by_a_fit_without_it() -> None:
    """Singles, a group below the width and one above it, against the regression fitted anew each time."""
    from backend.domain.selection import label_consistency

    rng = np.random.default_rng(3)
    rows, targets = rng.standard_normal((40, 6)), rng.standard_normal((40, 3))
    groups = np.array([0] * 4 + [1] * 12 + list(range(2, 26)))
    centred = rows - rows.mean(axis=0)
    found = label_consistency._left_out(rows, targets, groups)
    for group in range(26):
        rest, mine = groups != group, groups == group
        fitted = np.linalg.solve(
            centred[rest].T @ centred[rest] + label_consistency.RIDGE * np.eye(6), centred[rest].T @ targets[rest]
        )
        assert found[mine] == pytest.approx(centred[mine] @ fitted)


@pytest.mark.parametrize(
    "labels",
    [["one"] * 60, [f"text {i}" for i in range(60)]],
    ids=["labels of one class", "labels that are texts"],
)
def test_labels_that_tell_no_classes_apart_are_not_judged(labels: list[str]) -> None:
    rows, _, right = _pool(n=60)
    scores = _scores(right, known=1.0)
    assert np.array_equal(_chosen(rows, scores, 20, labels).scores, scores)


def test_constant_scores_with_labels_still_find_the_wrong_ones() -> None:
    rows, labels, right = _pool(wrong=0.25)
    choice = _chosen(rows, np.zeros(len(right)), 40, labels)
    aside = choice.scores < np.quantile(choice.scores, choice.score_floor)
    assert np.isfinite(choice.scores).all()
    assert np.mean(~right[aside]) > 0.7


def test_never_more_are_set_aside_than_k_leaves() -> None:
    rows, labels, right = _pool(wrong=0.45)
    picks = select(rows, _scores(right, known=1.0), k=150, labels=labels, stratify=False).picks
    assert len(picks) == 150


def test_a_rare_label_is_not_set_aside_for_being_rare() -> None:
    rows, labels, right = _pool(n=200)
    kept = np.flatnonzero((np.array(labels) != "label 3") | (np.arange(200) < 24))
    choice = _chosen(rows[kept], _scores(right[kept], known=0.0), 40, [labels[i] for i in kept])
    aside = choice.scores < np.quantile(choice.scores, choice.score_floor)
    assert not any(labels[i] == "label 3" for i in kept[aside])


def test_zero_rows_do_no_harm() -> None:
    rows, labels, right = _pool()
    rows[:3] = 0.0
    assert np.isfinite(_chosen(rows, _scores(right, known=1.0), 40, labels).scores).all()


def test_the_choice_is_the_same_for_scores_on_another_scale() -> None:
    rows, labels, right = _pool(wrong=0.2)
    scores = _scores(right, known=0.3)
    first, second = (_chosen(rows, values, 40, labels) for values in (scores, 8.0 * scores - 4.0))
    assert first.score_floor == second.score_floor
    assert first.scores == pytest.approx(second.scores)


def test_standard_scores_of_equal_values_are_zero() -> None:
    assert np.array_equal(z_scores(np.full(3, 7.0)), np.zeros(3))
    assert correlation(np.full(3, 7.0), np.arange(3.0)) == 0.0


def test_candidates_of_other_pools_tell_which_labels_are_contradicted() -> None:
    """Slices of one label each: alone none sees a mistake, with the others beside it each sets its own aside."""
    rows, labels, right = _pool(n=400, wrong=0.2)
    scores = _scores(right, known=0.0)
    keys = [f"{i:03}" for i in range(400)]
    mistakes = {True: 0, False: 0}
    for label in sorted(set(labels)):
        own = np.array([name == label for name in labels])
        at, others = np.flatnonzero(own), np.flatnonzero(~own)
        beside = Beside(
            embeddings=rows[others],
            scores=scores[others].tolist(),
            keys=[keys[i] for i in others],
            labels=[labels[i] for i in others],
        )
        mine = (rows[at], scores[at].tolist(), [keys[i] for i in at])
        alone = select(*mine, k=len(at) // 3)
        together = select(*mine, k=len(at) // 3, labels=[label] * len(at), stratify=False, beside=beside)
        assert "are contradicted by the rest of the pool" in together.report.method_reason
        assert (alone.report.n, together.report.n) == (len(at), len(at)), "the report is the slice's own"
        for is_beside, selection in ((False, alone), (True, together)):
            mistakes[is_beside] += int((~right[at[list(selection.picks)]]).sum())
    assert mistakes[True] < mistakes[False] / 4


def test_what_is_beside_changes_nothing_where_its_labels_tell_nothing() -> None:
    rows, _, right = _pool(n=80)
    scores = _scores(right, known=1.0).tolist()
    few = Beside(embeddings=rows[79:], scores=scores[79:], keys=["z"], labels=["another"])
    alone = select(rows[:12], scores[:12], k=4)
    together = select(rows[:12], scores[:12], k=4, labels=["one"] * 12, stratify=False, beside=few)
    assert together.picks == alone.picks
    assert together.report == alone.report
