"""The laws of keeping K of N, against brute force."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import InvalidInput
from backend.domain.selection.linkage import clustering
from backend.domain.selection.report import Severity, cohesion_log
from backend.domain.selection.select import Method, Selection
from backend.domain.selection.select import select as select_by

METHODS = [m for m in Method if m not in (Method.AUTO, Method.RANDOM, Method.ALL)]
methods = st.sampled_from(METHODS)
any_method = st.sampled_from([m for m in Method if m is not Method.ALL])


def select(*pool: object, method: str = "two_step", **options: object) -> Selection:
    """The seed's method where a test does not name one."""
    return select_by(*pool, method=method, **options)


@st.composite
def pools(draw: st.DrawFn, min_size: int = 1, max_size: int = 24) -> tuple[np.ndarray, list[float], list[str]]:
    """A pool with near-twins and exact twins, and scores that often tie."""
    n = draw(st.integers(min_size, max_size))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    centres = rng.standard_normal((draw(st.integers(1, 5)), 6))
    noise = draw(st.sampled_from([0.0, 0.05, 0.5]))
    rows = centres[rng.integers(0, len(centres), n)] + noise * rng.standard_normal((n, 6))
    scores = rng.choice(draw(st.sampled_from([[0.5], [0.0, 0.5, 1.0], list(np.linspace(-3, 9, 97))])), n)
    return rows.astype(np.float32), scores.tolist(), [f"key-{i:03}" for i in rng.permutation(n)]


def best_first(scores: list[float], keys: list[str]) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: (-scores[i], keys[i]))


def seeds_case(seed: int, *, scores: list[float] | None = None) -> tuple[np.ndarray, list[float], list[str]]:
    """Eleven paraphrases (cosine about .92 to each other, as MiniLM gives) and one outlier, 384 dimensions."""
    rng = np.random.default_rng(seed)
    paraphrases = np.eye(384)[0] + 0.3 / math.sqrt(384) * rng.standard_normal((11, 384))
    rows = np.vstack([paraphrases, rng.standard_normal(384)]).astype(np.float32)
    return rows, scores if scores is not None else rng.random(12).tolist(), [f"{i:02}" for i in range(12)]


@given(pools(), st.integers(0, 30), st.sampled_from(["diverse", "dpp", "facility_location"]))
def test_lambda_of_zero_is_exactly_top_k(pool: tuple, k: int, method: str) -> None:
    rows, scores, keys = pool
    expected = best_first(scores, keys)[:k]
    assert list(select(rows, scores, keys, k=k, method=method, diversity_lambda=0).picks) == expected
    assert list(select(rows, scores, keys, k=k, method="top_k").picks) == expected


@given(pools(), st.integers(0, 30), st.sampled_from(["diverse", "dpp", "facility_location", "k_center"]))
def test_with_an_infinite_lambda_scores_only_break_ties(pool: tuple, k: int, method: str) -> None:
    rows, scores, keys = pool
    squashed = [score / 1000 + 5 for score in scores]
    options = {"k": k, "method": method, "diversity_lambda": math.inf, "score_floor": 0}
    assert select(rows, scores, keys, **options).picks == select(rows, squashed, keys, **options).picks


@given(pools(), st.integers(1, 24), any_method, st.sampled_from([0.0, 0.3, 1.0, math.inf]), st.randoms())
def test_the_order_of_candidates_changes_nothing(pool: tuple, k: int, method: Method, weight: float, random) -> None:
    rows, scores, keys = pool
    shuffled = random.sample(range(len(keys)), len(keys))
    before = select(rows, scores, keys, k=k, method=method, diversity_lambda=weight)
    after = select(
        rows[shuffled],
        [scores[i] for i in shuffled],
        [keys[i] for i in shuffled],
        k=k,
        method=method,
        diversity_lambda=weight,
    )
    assert [shuffled[i] for i in after.picks] == list(before.picks)
    assert after.report.picks_sha256 == before.report.picks_sha256
    assert (after.report.k_natural, after.report.n_groups, after.report.severity) == (
        before.report.k_natural,
        before.report.n_groups,
        before.report.severity,
    )
    assert {shuffled[i] for i in after.report.floor_dropped} == set(before.report.floor_dropped)


@given(pools(), st.integers(1, 24), methods)
def test_noise_of_another_batch_or_machine_changes_nothing(pool: tuple, k: int, method: Method) -> None:
    # exact and far similarities only: between them a quantised value may fall on the edge of a step
    rows, scores, keys = pool
    rows = np.eye(6)[np.abs(rows).argmax(axis=1)]
    moved = rows + 1e-7 * np.random.default_rng(1).standard_normal(rows.shape)
    before, after = (select(each, scores, keys, k=k, method=method).picks for each in (rows, moved))
    if method is Method.DPP:  # its gains are logarithms: one on the edge of a step lets another of equals come first
        directions = rows.argmax(axis=1)
        assert sorted(scores[i] for i in before) == sorted(scores[i] for i in after)
        assert len({directions[i] for i in before}) == len({directions[i] for i in after})
    else:
        assert before == after


@given(pools(), st.integers(1, 24), st.sampled_from([0.0, 1 / 3, 0.9]))
def test_two_step_picks_the_best_of_each_cluster(pool: tuple, k: int, floor: float) -> None:
    rows, scores, keys = pool
    picks, report = (s := select(rows, scores, keys, k=k, score_floor=floor)).picks, s.report
    clusters = {i: c for i, c in enumerate(report.cluster_of) if c >= 0}
    assert len(picks) == len(report.cluster_sizes) == min(k, len(scores))
    assert sorted(clusters[i] for i in picks) == list(range(len(picks)))
    for pick in picks:
        members = [i for i, c in clusters.items() if c == clusters[pick]]
        assert pick == min(members, key=lambda i: (-scores[i], keys[i]))
        assert len(members) == report.cluster_sizes[clusters[pick]]
    assert list(picks) == [i for i in best_first(scores, keys) if i in picks]  # best first


@given(pools(), st.integers(1, 24), st.sampled_from([1 / 3, 0.5, 0.9]))
def test_the_floor_drops_the_worst_share_but_never_below_k_nor_one_of_equals(pool: tuple, k: int, floor: float) -> None:
    _, scores, _ = pool
    report = select(*pool, k=k, score_floor=floor).report
    dropped, kept = set(report.floor_dropped), set(range(len(scores))) - set(report.floor_dropped)
    assert len(kept) >= min(k, len(scores))
    assert len(dropped) <= len(scores) * floor + 1e-9
    assert max((scores[i] for i in dropped), default=-math.inf) < min(scores[i] for i in kept)
    assert all((report.cluster_of[i] == -1) == (i in dropped) for i in range(len(scores)))
    if len(set(scores)) == len(scores):
        assert len(kept) == max(min(k, len(scores)), len(scores) - math.floor(len(scores) * floor + 1e-9))


def brute_force_diverse(rows: np.ndarray, scores: list[float], keys: list[str], k: int, weight: float) -> list[int]:
    """The note's objective, one pick at a time, straight from its definition."""
    unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    cosine = np.clip(np.round(unit @ unit.T, 6), 0, None)
    penalty = cosine / (2 - cosine)
    low, high = min(scores), max(scores)
    rescaled = [(s - low) / (high - low) if high > low else 0.0 for s in scores]
    picks: list[int] = []
    while len(picks) < min(k, len(scores)):
        gain = {
            i: round(rescaled[i] - weight * max((penalty[i, j] for j in picks), default=0.0), 9)
            for i in range(len(scores))
            if i not in picks
        }
        picks.append(min(gain, key=lambda i: (-gain[i], -scores[i], keys[i])))
    return picks


@given(st.integers(0, 10_000), st.integers(2, 15), st.data(), st.sampled_from([0.1, 0.3, 1.0, 5.0]))
def test_diverse_follows_the_nearest_pick_objective(seed: int, n: int, data: st.DataObject, weight: float) -> None:
    rng = np.random.default_rng(seed)
    rows, scores, keys = rng.standard_normal((n, 5)), rng.random(n).tolist(), [f"{i:02}" for i in range(n)]
    k = data.draw(st.integers(1, n - 1))
    picks = select(rows, scores, keys, k=k, method="diverse", diversity_lambda=weight, score_floor=0).picks
    assert list(picks) == brute_force_diverse(rows, scores, keys, k, weight)


@given(st.integers(0, 10_000), st.integers(2, 15), st.data())
def test_an_infinite_lambda_is_farthest_first_from_the_best(seed: int, n: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    rows = np.abs(rng.standard_normal((n, 5)))  # no negative cosines: those count as equally far
    scores, k = rng.random(n).tolist(), data.draw(st.integers(1, n - 1))
    picks = list(
        select(rows, scores, ["same"] * n, k=k, method="diverse", diversity_lambda=math.inf, score_floor=0).picks
    )
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    distance = np.round(1 - unit @ unit.T, 6)
    assert picks[0] == int(np.argmax(scores))
    for at in range(1, k):
        to_picks = distance[:, picks[:at]].min(axis=1)
        to_picks[picks[:at]] = -1
        assert to_picks[picks[at]] == to_picks.max()


@given(pools(), st.integers(1, 24), methods, st.sampled_from([0.01, 0.3, 1.2]))
def test_no_two_picks_are_closer_than_the_minimum_distance(
    pool: tuple, k: int, method: Method, min_distance: float
) -> None:
    selection = select(*pool, k=k, method=method, min_distance=min_distance)
    assert 1 <= selection.report.k_actual <= k
    assert all(d is None or d >= min_distance for d in selection.report.nearest_pick)
    assert selection.report.n_twin_picks == 0


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("outlier_score", [0.0, 0.5, 1.0])
def test_the_seeds_case_of_eleven_paraphrases_and_an_outlier_always_warns(seed: int, outlier_score: float) -> None:
    rows, scores, keys = seeds_case(seed)
    report = select(rows, [*scores[:11], outlier_score], keys, k=4).report
    assert report.gap_detected
    assert report.severity is Severity.DEGENERATE
    # the floor may have taken the outlier away before the clusters are counted
    assert report.n_groups == report.k_natural == (1 if 11 in report.floor_dropped else 2)
    assert report.min_inter_cluster is not None
    assert report.min_inter_cluster < 0.2


def test_dropping_k_to_the_number_of_groups_mends_the_seeds_case() -> None:
    rows, _, keys = seeds_case(1)
    pool = (rows, [0.5 + i / 100 for i in range(12)], keys)
    report = select(*pool, k=4).report
    mended = select(*pool, k=min(4, report.n_groups))
    assert mended.picks == (11, 10)
    assert not mended.report.gap_detected


def test_a_pool_with_as_many_clear_clusters_as_asked_does_not_warn() -> None:
    rng = np.random.default_rng(3)
    rows = np.repeat(np.eye(384)[:4], 6, axis=0) + 0.3 / math.sqrt(384) * rng.standard_normal((24, 384))
    report = select(rows, [1.0] * 24, [f"{i:02}" for i in range(24)], k=4).report
    assert (report.k_natural, report.n_groups, report.cluster_sizes) == (4, 4, (6, 6, 6, 6))
    assert (report.gap_detected, report.severity) == (False, Severity.NONE)


def test_a_loose_pool_forced_beyond_its_clusters_is_a_warning_not_a_degenerate_split() -> None:
    rng = np.random.default_rng(5)  # three topics, their texts at a cosine distance of about .4
    rows = np.repeat(np.eye(384)[:3], 8, axis=0) + 0.8 / math.sqrt(384) * rng.standard_normal((24, 384))
    report = select(rows, [1.0] * 24, [f"{i:02}" for i in range(24)], k=8).report
    assert (report.k_natural, report.severity) == (3, Severity.WARNING)
    assert report.n_groups >= 8


def test_no_candidates_give_no_picks() -> None:
    selection = select([], [], [], k=4)
    assert selection.picks == ()
    assert (selection.report.n, selection.report.k_natural, selection.report.gap_detected) == (0, 0, False)
    assert select(np.empty((0, 384)), [], [], k=0).picks == ()
    assert select(np.eye(3), [1, 2, 3], ["a", "b", "c"], k=0).picks == ()


@pytest.mark.parametrize("method", METHODS)
def test_a_single_candidate_is_kept_without_a_warning(method: Method) -> None:
    selection = select([[1.0, 2.0]], [0.0], ["a"], k=3, method=method)
    assert (selection.picks, selection.report.k_natural, selection.report.gap_detected) == ((0,), 1, False)


@given(pools(max_size=12), methods)
def test_k_of_n_or_more_keeps_everybody(pool: tuple, method: Method) -> None:
    selection = select(*pool, k=len(pool[1]) + 3, method=method)
    assert sorted(selection.picks) == list(range(len(pool[1])))
    assert selection.report.k_actual == len(pool[1])
    assert selection.report.floor_dropped == ()
    assert list(selection.picks) == best_first(pool[1], pool[2])


@pytest.mark.parametrize("method", METHODS)
def test_identical_candidates_are_one_group_and_fill_k_with_flagged_twins(method: Method) -> None:
    selection = select(np.ones((6, 3)), [0.1] * 6, list("fedcba"), k=3, method=method)
    assert selection.picks == (5, 4, 3)  # ties by key
    report = selection.report
    assert (report.k_natural, report.n_groups, report.n_twin_picks) == (1, 1, 2)
    assert report.severity is Severity.DEGENERATE
    assert report.nearest_pick == (0.0, 0.0, 0.0)


def test_twins_beyond_the_number_of_different_texts_are_taken_best_first() -> None:
    rows = np.eye(2)[[0, 1, 0, 1, 0, 0]]
    selection = select(rows, [6, 1, 5, 2, 3, 4], list("abcdef"), k=4, score_floor=0)
    assert selection.picks == (0, 2, 5, 3)
    assert (selection.report.n_twin_picks, selection.report.n_groups) == (2, 2)


def test_a_zero_vector_stands_apart_from_everything_and_is_reported() -> None:
    rows = [[1, 0], [1, 0.01], [0, 0], [0, 0]]
    report = select(rows, [4, 3, 2, 1], list("abcd"), k=3, score_floor=0).report
    assert report.zero_rows == (2, 3)
    assert report.n_groups == 3
    assert report.cluster_of == (0, 0, 1, 2)
    assert report.n_twin_picks == 0
    assert report.nearest_pick == (1.0, 1.0, 1.0)


def test_rows_of_any_length_count_by_direction_alone() -> None:
    rows = np.random.default_rng(0).standard_normal((9, 4))
    scale = np.array([1e-300, 1e-30, 1, 1, 1, 1, 1, 1e30, 1e300])[:, None]
    keys = [str(i) for i in range(9)]
    assert select(rows * scale, range(9), keys, k=3).picks == select(rows, range(9), keys, k=3).picks


@pytest.mark.parametrize("scores", [[1e308, -1e308, 0.0], [5e-324, 0.0, 0.0], [-7.0, -8.0, -9.0], [-0.0, 0.0, -1.0]])
def test_scores_of_any_finite_size_are_ranked(scores: list[float]) -> None:
    selection = select(np.eye(3), scores, list("abc"), k=2, method="diverse", diversity_lambda=0.5)
    assert list(selection.picks) == best_first(scores, list("abc"))[:2]


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_are_not_finite_are_named(method: Method) -> None:
    with pytest.raises(InvalidInput, match="scores that are not finite: 1, 2") as refused:
        select(np.eye(3), [0.0, math.nan, math.inf], list("abc"), k=1, method=method)
    assert [p.pointer for p in refused.value.problems] == ["/scores/1", "/scores/2"]
    rows = np.eye(3)
    rows[2, 0] = np.inf
    with pytest.raises(InvalidInput, match="embeddings that are not finite: 2"):
        select(rows, [0.0, 1.0, 2.0], list("abc"), k=1, method=method)
    rows[2, 0] = np.nan
    with pytest.raises(InvalidInput, match="embeddings that are not finite: 2"):
        select(rows, [0.0, 1.0, 2.0], list("abc"), k=1, method=method)
    with pytest.raises(InvalidInput, match="and 20 more"):
        select(np.eye(30), [math.nan] * 30, ["k"] * 30, k=1, method=method)


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": -1},
        {"k": 1.5},
        {"k": True},
        {"method": "best"},
        {"linkage": "single"},
        {"penalty": "pairs"},
        {"overcluster": 0.9},
        {"overcluster": math.nan},
        {"seed": -1},
        {"seed": 0.5},
        {"score_floor": 1.0},
        {"score_floor": -0.1},
        {"score_floor": math.nan},
        {"diversity_lambda": -0.1},
        {"diversity_lambda": math.nan},
        {"min_distance": math.nan},
        {"min_distance": 2.1},
        {"scores": [1.0, 2.0]},
        {"scores": ["a", "b", "c"]},
        {"keys": ["a"]},
        {"embeddings": [[1.0], [1.0, 2.0], [3.0]]},
        {"embeddings": [1.0, 2.0, 3.0]},
    ],
)
def test_options_and_shapes_out_of_range_are_refused(wrong: dict) -> None:
    good = {"embeddings": np.eye(3), "scores": [1.0, 2.0, 3.0], "keys": ["a", "b", "c"], "k": 2}
    with pytest.raises(InvalidInput):
        select(**(good | wrong))


def test_the_report_is_json_of_integers_only() -> None:
    report = select(*seeds_case(2), k=4).report
    text = json.dumps(report.to_json())
    json.loads(text, parse_float=lambda s: pytest.fail(f"{s} is a float"))
    body = json.loads(text)
    assert (body["k_requested"], body["k_actual"], body["severity"]) == (4, 4, "degenerate")
    assert 0 < body["min_inter_cluster_ppm"] < body["thresholds"]["near_duplicate_cut_ppm"] == 200_000
    assert body["score_floor_ppm"] == 333_333
    assert select([[1.0]], [1], ["a"], k=1, diversity_lambda=math.inf).report.to_json()["diversity_lambda_ppm"] is None


def test_the_cohesion_log_reads_like_the_seeds() -> None:
    rows, _, keys = seeds_case(1)
    report = select(rows, [0.5 + i / 100 for i in range(12)], keys, k=4).report
    log = cohesion_log(report, "policy_clarification")
    assert (
        "slice policy_clarification\n  candidates: 12   K target: 4   kept: 4 by two_step\n  natural clusters: 2 ("
        in log
    )
    assert "forced K=4 split: silhouette" in log
    assert log.endswith("WARN cluster gap detected; degenerate split")


def test_above_the_float64_limit_the_picks_are_those_of_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.standard_normal((40, 64)), 5, axis=0) + 0.3 * rng.standard_normal((200, 64))
    pool = (rows, rng.random(200).tolist(), [f"{i:03}" for i in range(200)])
    expected = {m: select(*pool, k=66, method=m).picks for m in METHODS}
    monkeypatch.setattr("backend.domain.selection.pool.FLOAT64_ROWS", 100)
    assert {m: select(*pool, k=66, method=m).picks for m in METHODS} == expected


@pytest.mark.nightly
def test_any_number_of_threads_gives_the_same_report(tmp_path: Path) -> None:
    code = (
        "import numpy as np, json; from backend.domain.selection.select import select; r = np.random.default_rng(0);"
        "x = r.standard_normal((600, 384)); x[300:] = x[:300] + .2 * r.standard_normal((300, 384));"
        "s = select(x, r.random(600), [f'{i:03}' for i in range(600)], k=200);"
        "print(json.dumps(s.report.to_json(), sort_keys=True))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"OMP_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
            text=True,
            cwd=Path(__file__).parents[4],
        ).stdout
        for n in ("1", "2")
    }
    assert len(outputs) == 1


def test_twelve_candidates_take_milliseconds_and_three_thousand_seconds() -> None:
    rng = np.random.default_rng(0)
    for n, limit_s in ((12, 0.02), (3_000, 8.0)):  # ten times what was measured on one busy core
        pool = (rng.standard_normal((n, 384)), rng.random(n), [str(i) for i in range(n)])
        select(*(part[:4] for part in pool), k=2)
        start = time.process_time()
        assert select(*pool, k=n // 3).report.all_k_scanned
        assert time.process_time() - start < limit_s


def test_the_clusters_are_those_of_the_dendrogram_over_canonical_rows() -> None:
    rows, scores, keys = seeds_case(4)
    report = select(rows, scores, keys, k=4, score_floor=0).report
    order = best_first(scores, keys)
    unit = rows[order] / np.linalg.norm(rows[order], axis=1, keepdims=True)
    labels = clustering.cut(clustering.average_linkage(unit.astype(np.float64)), 4)
    assert [report.cluster_of[i] for i in order] == labels.tolist()


@pytest.mark.parametrize("linkage", ["complete", "ward"])
def test_another_linkage_splits_otherwise_and_is_reported(linkage: str) -> None:
    rng = np.random.default_rng(11)
    rows, scores, keys = rng.standard_normal((60, 5)), rng.random(60).tolist(), [f"{i:02}" for i in range(60)]
    average, other = select(rows, scores, keys, k=12), select(rows, scores, keys, k=12, linkage=linkage)
    assert (other.report.linkage, len(other.picks)) == (linkage, 12)
    assert other.report.cluster_of != average.report.cluster_of
    assert other.report.n_groups == average.report.n_groups, "near-duplicate groups are always of average linkage"


def test_over_clustering_keeps_the_best_representatives_of_more_clusters() -> None:
    rng = np.random.default_rng(12)
    rows, scores, keys = rng.standard_normal((60, 5)), rng.random(60).tolist(), [f"{i:02}" for i in range(60)]
    finer = select(rows, scores, keys, k=15, score_floor=0)
    over = select(rows, scores, keys, k=10, overcluster=1.5, score_floor=0)
    assert over.picks == finer.picks[:10]
    assert over.report.mean_score >= select(rows, scores, keys, k=10, score_floor=0).report.mean_score


def test_the_baselines_know_no_score() -> None:
    rng = np.random.default_rng(13)
    rows, scores, keys = rng.standard_normal((40, 5)), rng.random(40).tolist(), [f"{i:02}" for i in range(40)]
    assert sorted(select(rows, scores, keys, k=3, method="all").picks) == list(range(40))
    draws = {select(rows, scores, keys, k=10, method="random", seed=seed).picks for seed in range(20)}
    assert len(draws) == 20
    assert select(rows, scores, keys, k=10, method="random", seed=4).report.floor_dropped == ()
    shares = [sum(scores[i] > np.median(scores) for i in draw) / 10 for draw in draws]
    assert 0.35 < np.mean(shares) < 0.65


def test_without_keys_the_embedding_breaks_ties() -> None:
    rng = np.random.default_rng(14)
    rows = rng.standard_normal((12, 4)).astype(np.float32)
    order = rng.permutation(12)
    before = select(rows, [1.0] * 12, k=4)
    after = select(rows[order], [1.0] * 12, k=4)
    assert [order[i] for i in after.picks] == list(before.picks)


def test_auto_says_what_it_chose_and_why() -> None:
    report = select(*seeds_case(2), k=4, method="auto").report
    assert (report.requested_method, report.method in METHODS) == ("auto", True)
    assert report.method_reason.endswith(".")
    assert select(*seeds_case(2), k=4).report.method_reason == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "facility_location"}, "1 - 1/e"),
        ({"method": "k_center"}, "twice"),
        ({"method": "diverse", "diversity_lambda": math.inf}, "twice"),
        ({"method": "dpp", "diversity_lambda": 0}, "greatest sum"),
        ({"method": "facility_location", "diversity_lambda": 0}, "greatest sum"),
        ({"method": "diverse", "diversity_lambda": math.inf, "penalty": "sum"}, ""),
        ({"method": "diverse"}, ""),
        ({"method": "two_step"}, ""),
        ({"method": "dpp"}, ""),
        ({"method": "top_k", "min_distance": 0.1}, ""),
    ],
)
def test_the_report_says_which_bound_holds_and_claims_none_where_none_does(options: dict, words: str) -> None:
    guarantee = select(*seeds_case(3), k=4, **options).report.guarantee
    assert words in guarantee
    assert bool(guarantee) == bool(words)


def test_the_mean_pairwise_distance_is_that_of_all_pairs_of_picks() -> None:
    rng = np.random.default_rng(15)
    rows = rng.standard_normal((30, 5))
    selection = select(rows, rng.random(30), k=9)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    pairs = [1 - unit[i] @ unit[j] for i in selection.picks for j in selection.picks if i < j]
    assert selection.report.mean_pairwise == pytest.approx(np.mean(pairs))
    assert select(rows, rng.random(30), k=1).report.mean_pairwise is None


def test_more_rows_than_the_limit_are_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "MAX_ROWS", 5)
    with pytest.raises(InvalidInput, match="6 candidates are more than the 5") as refused:
        select(np.eye(6), range(6), k=2)
    assert refused.value.code == "too_many_candidates"


def test_facility_location_refuses_what_would_take_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.domain.selection.select.MATRIX_ROWS", 5)
    with pytest.raises(InvalidInput, match="at most 5 candidates above the score floor and there are 12"):
        select(np.eye(12), range(12), k=2, method="facility_location")
