"""The baseline every adapter is measured against, and the head it starts from: logistic regression on the frozen
embeddings.

Started from a random head, LoRA was erratic at 80 to 770 pairs and sometimes below this baseline; started from this one
it never was (docs/decisions).
"""

import warnings
from collections.abc import Sequence

import numpy as np

from gpu_runners.distill.label.dataset import Pair
from gpu_runners.models.label_adapter import SCALE, Head
from gpu_runners.models.tensor_files import Array


def fit_head(embedded: Array, pairs: Sequence[Pair], *, n_labels: int, c: float = 10.0) -> Head:
    """L2-regularised multinomial logistic regression on (n, d) unit rows, rescaled so that `16 * e @ W.T + b` are its
    logits. Every label must occur in `pairs`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=c, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a head a hair off its optimum is still a head
        model.fit(
            embedded.astype(np.float64),
            np.array([pair.label for pair in pairs]),
            sample_weight=np.array([pair.weight for pair in pairs]),
        )
    weight, bias = model.coef_, model.intercept_
    if n_labels == 2:  # one row of log-odds there; two rows with the same difference here
        weight, bias = np.vstack([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2])
    return Head(weight=(weight / SCALE).astype(np.float32), bias=bias.astype(np.float32))
