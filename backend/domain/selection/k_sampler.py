"""`selection.select` with the manners of a scikit-learn estimator, for people's own pipelines. Needs no scikit-learn.

    kept = KSampler(k=80).fit_predict(X, score)      # (n,) bool
    X[kept], y[kept]

It has the parts of that protocol that mean something here: constructor arguments are stored as they came and checked in
`fit`; `get_params`, `set_params` and `sklearn.base.clone` work; results end in an underscore. There is no `predict`:
which rows are kept is a property of the whole pool, and a new row belongs to no pool.
"""

import inspect
import sys
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from backend.domain.errors import InvalidInput
from backend.domain.selection.options import DEFAULT_LAMBDA
from backend.domain.selection.select import SelectionReport, select


class KSamplerError(InvalidInput, ValueError):
    """The refusals of `select`, as the ValueError that users of estimators expect."""


class KSampler:
    """Keep `k` of n rows, score and spread together.

    `k` is a whole number, or a share of the rows between 0 and 1 exclusive (rounded up); the other parameters are those
    of `selection.select`.

    After `fit`: `picks_` (m,) int64 row indices, best first; `mask_` (n,) bool; `labels_` (n,) int64, the cluster that
    each kept row stands for, -1 for dropped ones; `report_` the SelectionReport; `n_features_in_`.

    >>> KSampler(k=2, score_floor=0.0).fit_predict([[1, 0], [1, 0.01], [0, 1]], [0.9, 0.8, 0.1]).tolist()
    [True, False, True]
    """

    picks_: NDArray[np.int64]
    mask_: NDArray[np.bool_]
    labels_: NDArray[np.int64]
    report_: SelectionReport
    n_features_in_: int

    def __init__(
        self,
        *,
        k: float = 1 / 3,
        method: str = "auto",
        linkage: str = "average",
        score_floor: float | None = None,
        diversity_lambda: float = DEFAULT_LAMBDA,
        penalty: str = "nearest",
        min_distance: float = 0.0,
        overcluster: float = 1.0,
        seed: int = 0,
        stratify: bool = True,
        is_traffic: bool = False,
    ) -> None:
        self.k = k
        self.method = method
        self.linkage = linkage
        self.score_floor = score_floor
        self.diversity_lambda = diversity_lambda
        self.penalty = penalty
        self.min_distance = min_distance
        self.overcluster = overcluster
        self.seed = seed
        self.stratify = stratify
        self.is_traffic = is_traffic

    def fit(
        self,
        X: ArrayLike,
        score: ArrayLike | None = None,
        labels: Sequence[Any] | None = None,
        keys: Sequence[str] | None = None,
    ) -> Self:
        """`X` (n, d) embeddings of any length; `score` (n,) higher is better, None where all count the same; `labels`
        (n,) share k out over the classes unless `stratify` is False; `keys` (n,) break ties, by default the rows
        themselves do. Raises KSamplerError, a ValueError."""
        try:
            rows = np.asarray(X)
            if rows.ndim != 2 or rows.dtype.kind not in "fiu":
                raise InvalidInput(f"X must be a table of numbers (n, d), not {rows.dtype} of shape {rows.shape}.")
            scores = np.zeros(len(rows)) if score is None else np.asarray(score, dtype=np.float64)
            if scores.shape != (len(rows),):
                raise InvalidInput(
                    f"score must have one number for each of {len(rows)} rows, not shape {scores.shape}."
                )
            options = {name: value for name, value in self.get_params().items() if name != "k"}
            selection = select(
                rows,
                scores.tolist(),
                keys,
                k=self._k_of(len(rows)),
                labels=None if labels is None else [str(label) for label in labels],
                **options,
            )
        except InvalidInput as refused:
            raise KSamplerError(refused.message, code=refused.code, problems=refused.problems) from refused
        except (ValueError, TypeError) as error:  # numpy on ragged or non-numeric input
            raise KSamplerError(f"X must be n rows of one width and score n numbers: {error}") from error
        self.picks_ = np.array(selection.picks, dtype=np.int64)
        self.mask_ = np.zeros(len(rows), dtype=bool)
        self.mask_[self.picks_] = True
        clusters = np.array(selection.report.cluster_of, dtype=np.int64)
        self.labels_ = np.where(self.mask_, clusters, -1)
        self.report_ = selection.report
        self.n_features_in_ = rows.shape[1]
        return self

    def fit_predict(
        self,
        X: ArrayLike,
        score: ArrayLike | None = None,
        labels: Sequence[Any] | None = None,
        keys: Sequence[str] | None = None,
    ) -> NDArray[np.bool_]:
        """(n,) True for the rows that are kept."""
        return self.fit(X, score, labels, keys).mask_

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """`deep` is the protocol's; there is nothing deeper."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        unknown = sorted(set(params) - set(_PARAMETERS))
        if unknown:
            raise KSamplerError(f"KSampler has no parameter {unknown[0]!r}; it has {', '.join(_PARAMETERS)}.")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks of an estimator before it shows a pipeline. Only scikit-learn calls this, so
        its module is there already."""
        utils = sys.modules["sklearn.utils"]
        return utils.Tags(estimator_type=None, target_tags=utils.TargetTags(required=False))

    def _k_of(self, n: int) -> int:
        if isinstance(self.k, float | np.floating) and 0 < self.k < 1:
            return -(-round(n * float(self.k) * 1e9) // 10**9)
        return self.k  # type: ignore[return-value] # select says what is wrong with it

    def __repr__(self) -> str:
        """Only what differs from the defaults, as scikit-learn prints its estimators."""
        changed = [f"{name}={getattr(self, name)!r}" for name in _PARAMETERS if getattr(self, name) != _DEFAULTS[name]]
        return f"KSampler({', '.join(changed)})"


_DEFAULTS = {name: p.default for name, p in inspect.signature(KSampler).parameters.items()}
_PARAMETERS = tuple(_DEFAULTS)
