"""Clustering and the natural count beside their peers: cases of the speed bench (`selection_speed` runs them).

scipy and fastcluster take a condensed distance matrix. Their own way of making it (`pdist`) takes longer than the
clustering, so both are also given ours, made by BLAS: that is the harder peer. scikit-learn makes its own. kmedoids
minimises another objective; it is there because it, too, answers with K clusters.

Above n = 1,000 scikit-learn's loop over every k is extrapolated from three of them (2, K / 2 and K).
"""

from collections.abc import Callable

import numpy as np

from backend.domain.selection.linkage import clustering
from tests.bench.selection_speed_cases import Case, Pool, Run

AVERAGE, OTHERS, COUNT = "K clusters, average linkage", "K clusters, other linkages", "Silhouette of every k up to K"
_LOOP_IN_FULL = 1_000
_FORTY_GB = "its condensed matrix takes 40 GB"


def _ours(linkage: str) -> Callable[[Pool], Run]:
    def prepare(pool: Pool) -> Run:
        rows = pool.domain_rows()
        return lambda: clustering.cut(clustering.linkage_of(rows, linkage), pool.k)

    return prepare


def _condensed(rows: np.ndarray) -> np.ndarray:
    """`(n (n-1) / 2,)` float64 cosine distances by BLAS, in blocks: what scipy and fastcluster take."""
    n, filled = len(rows), 0
    out = np.empty(n * (n - 1) // 2)
    for start in range(0, n, 1_024):
        distances = np.maximum(1 - rows[start : start + 1_024] @ rows[start:].T, 0)
        for i, row in enumerate(distances):
            width = n - 1 - start - i
            out[filled : filled + width] = row[i + 1 :]
            filled += width
    return out


def _tree(module: str, method: str, *, own_distances: bool = False) -> Callable[[Pool], Run]:
    """scipy's or fastcluster's `linkage`, and scipy's cut, which both use."""

    def prepare(pool: Pool) -> Run:
        from scipy.cluster.hierarchy import fcluster

        if module == "scipy":
            from scipy.cluster.hierarchy import linkage
        else:
            from fastcluster import linkage

        def run() -> object:
            if own_distances:
                z = linkage(pool.rows, method, "cosine")
            else:
                distances = _condensed(pool.rows)
                z = linkage(np.sqrt(2 * distances) if method == "ward" else distances, method)
            return fcluster(z, pool.k, "maxclust")

        return run

    return prepare


def _fastcluster_vectors(pool: Pool) -> Run:
    from fastcluster import linkage_vector
    from scipy.cluster.hierarchy import fcluster

    return lambda: fcluster(linkage_vector(pool.rows, "ward"), pool.k, "maxclust")


def _sklearn(linkage: str) -> Callable[[Pool], Run]:
    def prepare(pool: Pool) -> Run:
        from sklearn.cluster import AgglomerativeClustering

        metric = "euclidean" if linkage == "ward" else "cosine"
        model = AgglomerativeClustering(n_clusters=pool.k, metric=metric, linkage=linkage)
        return lambda: model.fit_predict(pool.rows)

    return prepare


def _kmedoids(pool: Pool) -> Run:
    import kmedoids

    def run() -> object:
        distances = np.maximum(1 - pool.rows @ pool.rows.T, 0)
        return kmedoids.fasterpam(distances, pool.k, random_state=0, n_cpu=1)

    return run


def _every_silhouette(pool: Pool) -> Run:
    rows = pool.domain_rows()
    dendrogram = clustering.linkage_of(rows)
    return lambda: clustering.silhouettes_by_k(rows, dendrogram, pool.k)


def _sklearn_loop(pool: Pool) -> Run:
    from sklearn.metrics import silhouette_score

    dendrogram = clustering.linkage_of(pool.domain_rows())
    ks = range(2, pool.k + 1) if pool.n <= _LOOP_IN_FULL else (2, pool.k // 2, pool.k)
    labels = [clustering.cut(dendrogram, k) for k in ks]
    return lambda: [silhouette_score(pool.rows, some, metric="cosine") for some in labels]


def _loop_factor(pool: Pool) -> float:
    return 1.0 if pool.n <= _LOOP_IN_FULL else (pool.k - 1) / 3


_OURS, _COMPLETE, _WARD = "ours: average", "ours: complete", "ours: ward"
_SILHOUETTES = "ours: one pass over the dendrogram"

CASES = (
    Case(table=AVERAGE, name=_OURS, prepare=_ours("average")),
    Case(
        table=AVERAGE,
        name="fastcluster, matrix by BLAS",
        prepare=_tree("fastcluster", "average"),
        peer_of=_OURS,
        needs="fastcluster",
        max_n=20_000,
        beyond=_FORTY_GB,
    ),
    Case(
        table=AVERAGE,
        name="fastcluster, own matrix",
        prepare=_tree("fastcluster", "average", own_distances=True),
        peer_of=_OURS,
        needs="fastcluster",
        max_n=5_000,
        beyond="slower than the above from n = 240 on",
    ),
    Case(
        table=AVERAGE,
        name="scipy, matrix by BLAS",
        prepare=_tree("scipy", "average"),
        peer_of=_OURS,
        max_n=20_000,
        beyond=_FORTY_GB,
    ),
    Case(
        table=AVERAGE,
        name="scikit-learn",
        prepare=_sklearn("average"),
        peer_of=_OURS,
        max_n=20_000,
        beyond="its matrices take 80 GB",
    ),
    Case(
        table=AVERAGE,
        name="kmedoids FasterPAM",
        prepare=_kmedoids,
        peer_of=_OURS,
        needs="kmedoids",
        max_n=5_000,
        beyond="another objective, and slower",
    ),
    Case(table=OTHERS, name=_COMPLETE, prepare=_ours("complete"), max_n=20_000, beyond="refused above 20,000 rows"),
    Case(
        table=OTHERS,
        name="fastcluster complete, matrix by BLAS",
        prepare=_tree("fastcluster", "complete"),
        peer_of=_COMPLETE,
        needs="fastcluster",
        max_n=20_000,
        beyond=_FORTY_GB,
    ),
    Case(table=OTHERS, name=_WARD, prepare=_ours("ward")),
    Case(
        table=OTHERS,
        name="fastcluster ward, matrix by BLAS",
        prepare=_tree("fastcluster", "ward"),
        peer_of=_WARD,
        needs="fastcluster",
        max_n=20_000,
        beyond=_FORTY_GB,
    ),
    Case(
        table=OTHERS,
        name="fastcluster ward without a matrix",
        prepare=_fastcluster_vectors,
        peer_of=_WARD,
        needs="fastcluster",
        max_n=5_000,
        beyond="over 200 s at n = 20,000",
    ),
    Case(table=COUNT, name=_SILHOUETTES, prepare=_every_silhouette, max_n=20_000, beyond="see the text"),
    Case(
        table=COUNT,
        name="scikit-learn, one k after another",
        prepare=_sklearn_loop,
        peer_of=_SILHOUETTES,
        factor=_loop_factor,
        max_n=20_000,
        beyond="days",
    ),
)
