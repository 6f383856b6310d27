"""The picking methods beside their peers: cases of the speed bench (`selection_speed` runs them).

Peers get the rows in the form that suits them best, the similarity matrix made by BLAS where they take one (their own
way of making it is 5 to 10 times slower), and a compiled warm-up where they compile. Making the matrix is timed: it is
part of the job. Their objectives are not ours to the letter; each is the nearest that its library has.

    diverse, nearest     pyversity MMR (the same shape: score less similarity to the nearest pick)
    diverse, sum         pyversity MSD (score plus the sum of distances), submodlib graph cut (no scores)
    dpp                  pyversity DPP (greedy MAP, the plain cosine kernel), submodlib log-determinant (no scores)
    facility location    submodlib and apricot (no scores), pyversity COVER
    k-DPP draw           DPPy, exact
"""

from collections.abc import Callable

import numpy as np

from backend.domain.selection.dpp import MAX_SAMPLED_ROWS, dpp_map_picks, k_dpp_sample
from backend.domain.selection.facility_location import facility_location_picks
from backend.domain.selection.greedy_picks import diverse_picks, k_center_picks
from tests.bench.selection_speed_cases import Case, Pool, Run

_GREEDY, _DPP, _COVERAGE = "Score less closeness", "Determinants", "Coverage"


def _diverse(penalty: str) -> Callable[[Pool], Run]:
    def prepare(pool: Pool) -> Run:
        rows = pool.domain_rows()
        return lambda: diverse_picks(rows, pool.scores, pool.k, weight=1.0, penalty=penalty)

    return prepare


def _k_center(pool: Pool) -> Run:
    rows = pool.domain_rows()
    return lambda: k_center_picks(rows, pool.k)


def _dpp(pool: Pool) -> Run:
    rows = pool.domain_rows()
    return lambda: dpp_map_picks(rows, pool.scores, pool.k, weight=1.0)


def _dpp_of_a_thousand(pool: Pool) -> Run:
    rows = pool.domain_rows()
    return lambda: dpp_map_picks(rows, pool.scores, min(pool.k, 1_000), weight=1.0)


def _k_dpp(pool: Pool) -> Run:
    rows = pool.domain_rows()
    return lambda: k_dpp_sample(rows, pool.scores, pool.k, weight=1.0, seed=0)


def _facility_location(pool: Pool) -> Run:
    rows = pool.domain_rows()
    return lambda: facility_location_picks(rows, pool.scores, pool.k, weight=1.0)


def _pyversity(strategy: str) -> Callable[[Pool], Run]:
    def prepare(pool: Pool) -> Run:
        from pyversity import diversify

        scores = pool.scores.astype(np.float32)
        return lambda: diversify(pool.rows, scores, pool.k, strategy=strategy, diversity=0.5)

    return prepare


def _submodlib(function: str, **options: float | bool) -> Callable[[Pool], Run]:
    def prepare(pool: Pool) -> Run:
        import submodlib

        def run() -> object:
            similarity = np.maximum(pool.rows @ pool.rows.T, 0)
            matrix = {"ggsijs" if function == "GraphCutFunction" else "sijs": similarity}
            objective = getattr(submodlib, function)(n=pool.n, mode="dense", **matrix, **options)
            return objective.maximize(budget=pool.k, optimizer="LazyGreedy", show_progress=False)

        return run

    return prepare


def _apricot(pool: Pool) -> Run:
    from apricot import FacilityLocationSelection

    def run(rows: np.ndarray, k: int) -> object:
        similarity = np.maximum(rows @ rows.T, 0).astype(np.float64)
        return FacilityLocationSelection(k, metric="precomputed", optimizer="lazy").fit(similarity)

    run(np.eye(8, dtype=np.float32), 2)  # compiles
    return lambda: run(pool.rows, pool.k)


def _dppy(pool: Pool) -> Run:
    from dppy.finite_dpps import FiniteDPP

    scores = (pool.scores - pool.scores.mean()) / pool.scores.std()
    quality = np.exp(0.3 * scores)

    def run() -> object:
        rows = pool.rows.astype(np.float64)
        likelihood = quality[:, None] / (2 - rows @ rows.T) * quality
        return FiniteDPP("likelihood", L=likelihood).sample_exact_k_dpp(size=pool.k, random_state=0)

    return run


_NEAREST, _SUM = "ours: diverse, nearest pick", "ours: diverse, pair sum"
_MAP, _DRAW = "ours: dpp, greedy MAP", "ours: k-DPP draw"
_FACILITY = "ours: facility location"
_MATRIX_COPIES = "holds several n x n copies, of doubles"

CASES = (
    Case(table=_GREEDY, name=_NEAREST, prepare=_diverse("nearest")),
    Case(table=_GREEDY, name="pyversity MMR", prepare=_pyversity("mmr"), peer_of=_NEAREST, needs="pyversity"),
    Case(table=_GREEDY, name=_SUM, prepare=_diverse("sum")),
    Case(table=_GREEDY, name="pyversity MSD", prepare=_pyversity("msd"), peer_of=_SUM, needs="pyversity"),
    Case(
        table=_GREEDY,
        name="submodlib graph cut",
        prepare=_submodlib("GraphCutFunction", lambdaVal=0.4),
        peer_of=_SUM,
        needs="submodlib",
        max_n=5_000,
        beyond=_MATRIX_COPIES,
    ),
    Case(table=_GREEDY, name="ours: k-center", prepare=_k_center),
    Case(
        table=_DPP,
        name=_MAP,
        prepare=_dpp,
        max_n=20_000,
        beyond="n x K is over the limit of 200,000,000: too_many_candidates",
    ),
    Case(table=_DPP, name="ours: dpp, K = 1,000", prepare=_dpp_of_a_thousand, min_n=20_000),
    Case(
        table=_DPP,
        name="pyversity DPP",
        prepare=_pyversity("dpp"),
        peer_of=_MAP,
        needs="pyversity",
        max_n=20_000,
        beyond="n x K floats: 13 GB",
    ),
    Case(
        table=_DPP,
        name="submodlib log-determinant",
        prepare=_submodlib("LogDeterminantFunction", lambdaVal=1.0),
        peer_of=_MAP,
        needs="submodlib",
        max_n=5_000,
        beyond=_MATRIX_COPIES,
    ),
    Case(
        table=_DPP,
        name=_DRAW,
        prepare=_k_dpp,
        max_n=MAX_SAMPLED_ROWS,
        beyond="refused above 2,000 rows",
    ),
    Case(table=_DPP, name="DPPy k-DPP draw", prepare=_dppy, peer_of=_DRAW, needs="dppy", max_n=MAX_SAMPLED_ROWS),
    Case(table=_COVERAGE, name=_FACILITY, prepare=_facility_location, max_n=20_000, beyond="see the text"),
    Case(
        table=_COVERAGE,
        name="submodlib facility location",
        prepare=_submodlib("FacilityLocationFunction", separate_rep=False),
        peer_of=_FACILITY,
        needs="submodlib",
        max_n=5_000,
        beyond=_MATRIX_COPIES,
    ),
    Case(
        table=_COVERAGE,
        name="apricot facility location",
        prepare=_apricot,
        peer_of=_FACILITY,
        needs="apricot",
        max_n=5_000,
        beyond=_MATRIX_COPIES,
    ),
    Case(
        table=_COVERAGE,
        name="pyversity COVER",
        prepare=_pyversity("cover"),
        peer_of=_FACILITY,
        needs="pyversity",
        max_n=5_000,
        beyond="n^2 K steps: 64 times its time at 5,000",
    ),
)
