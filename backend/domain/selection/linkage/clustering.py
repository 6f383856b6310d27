"""Agglomerative clustering of unit rows on cosine distance, exact and deterministic, to 100,000 rows.

One average-linkage dendrogram answers everything: the K clusters of a forced split, the smallest distance between them
at every K (the next merge's height), the number of near-duplicate groups, and the silhouette at every k in one pass
(`silhouettes`). Rows are expected in canonical order (`select` sorts them).

    n < SCIPY_ROWS   scipy on a BLAS-made condensed matrix, quantised to 1e-6; any linkage
    average, ward    rounds of reciprocal nearest neighbours (`reciprocal_nn`), O(n d) memory, to 100,000 rows
    complete         a chain on a square float32 matrix (`nn_chain`), to 20,000 rows

Not here: scores. Which member of a cluster is kept is `selection`'s business.
"""

import numpy as np
from scipy.cluster.hierarchy import linkage as scipy_linkage

from backend.domain.errors import InvalidInput
from backend.domain.selection.linkage.criteria import Linkage
from backend.domain.selection.linkage.dendrogram import NEAR_DUPLICATE_CUT as NEAR_DUPLICATE_CUT
from backend.domain.selection.linkage.dendrogram import Dendrogram as Dendrogram
from backend.domain.selection.linkage.dendrogram import cut as cut
from backend.domain.selection.linkage.dendrogram import dendrogram_of, with_twins_in_order
from backend.domain.selection.linkage.nn_chain import Progress, complete_merges
from backend.domain.selection.linkage.quantised_cosine import QUANTUM as QUANTUM
from backend.domain.selection.linkage.quantised_cosine import STEPS as STEPS
from backend.domain.selection.linkage.quantised_cosine import Floats as Floats
from backend.domain.selection.linkage.quantised_cosine import Ints as Ints
from backend.domain.selection.linkage.quantised_cosine import Rows as Rows
from backend.domain.selection.linkage.quantised_cosine import quantised_distances as quantised_distances
from backend.domain.selection.linkage.reciprocal_nn import round_merges
from backend.domain.selection.linkage.silhouettes import silhouette as silhouette
from backend.domain.selection.linkage.silhouettes import silhouettes_by_k as silhouettes_by_k

MAX_ROWS = 100_000
MAX_ROWS_COMPLETE = 20_000  # its matrix takes 1.6 GB there
SCIPY_ROWS = 1_200  # below, scipy is the faster


def linkage_of(unit_rows: Rows, linkage: str = Linkage.AVERAGE, on_progress: Progress | None = None) -> Dendrogram:
    """The exact dendrogram of `(n, d)` unit or zero rows, a zero row being at distance 1 from every other; what its
    heights are is said there. `on_progress(stage, n_done, n)` is called now and then above SCIPY_ROWS.

    Raises InvalidInput (too_many_candidates) above 100,000 rows, 20,000 for complete linkage."""
    n, rule = len(unit_rows), Linkage(linkage)
    limit = MAX_ROWS_COMPLETE if rule is Linkage.COMPLETE else MAX_ROWS
    if n > limit:
        raise InvalidInput(
            f"{n:,} rows are more than the {limit:,} that can be clustered at once with {rule} linkage.",
            code="too_many_candidates",
        )
    if n < 2:
        return Dendrogram(n=n, merges=np.empty((0, 2), np.int64), heights=np.empty(0))
    if n < SCIPY_ROWS:
        return _by_scipy(unit_rows, rule)
    if rule is Linkage.COMPLETE:
        return dendrogram_of(n, *complete_merges(unit_rows, on_progress))
    return dendrogram_of(n, *round_merges(unit_rows, rule, on_progress))


def average_linkage(unit_rows: Rows) -> Dendrogram:
    """`linkage_of` with the linkage that reports, cuts and thresholds are stated in."""
    return linkage_of(unit_rows)


def n_near_duplicate_groups(unit_rows: Rows, cut: float = NEAR_DUPLICATE_CUT) -> int:
    """The number a pool's K may be dropped to without losing coverage; the silhouette's count loses up to 12 points of
    accuracy."""
    return average_linkage(unit_rows).n_groups(cut)


def _by_scipy(unit_rows: Rows, linkage: Linkage) -> Dendrogram:
    distances = _condensed_distances(unit_rows)
    if linkage is Linkage.WARD:  # scipy wants Euclidean distances and returns sqrt(2 cost)
        z = scipy_linkage(np.sqrt(2 * distances), method="ward")
        heights = np.rint(z[:, 2] ** 2 / 2 * STEPS) / STEPS
    else:
        z = scipy_linkage(distances, method=linkage.value)
        heights = z[:, 2]
    return with_twins_in_order(len(unit_rows), z[:, :2].astype(np.int64), np.maximum.accumulate(heights))


def _condensed_distances(unit_rows: Rows) -> Floats:
    """`(n (n-1) / 2,)` quantised cosine distances, row by row above the diagonal."""
    n = len(unit_rows)
    above = np.arange(n)[:, None] < np.arange(n)
    return quantised_distances((unit_rows @ unit_rows.T)[above])
