"""The baseline every adapter is measured against, and the head it starts from: logistic regression on the frozen
embeddings.

Started from a random head, LoRA was erratic at 80 to 770 pairs and sometimes below this baseline; started from this one
it never was (docs/decisions).
"""

import warnings
from collections.abc import Sequence

import numpy as np

from gpu_runners.distill.label.dataset import PPM, Pair
from gpu_runners.models.label_adapter import SCALE, Head
from gpu_runners.models.tensor_files import Array


def fit_head(embedded: Array, pairs: Sequence[Pair], *, n_labels: int, c: float = 10.0) -> Head:
    """L2-regularised multinomial logistic regression on (n, d) unit rows, rescaled so that `16 * e @ W.T + b` are its
    logits. Every label must occur in `pairs`. A pair with targets counts as one of each label, of its share."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    parts = [(i, label, ppm) for i, pair in enumerate(pairs) for label, ppm in pair.targets or ((pair.label, PPM),)]
    model = LogisticRegression(C=c, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a head a hair off its optimum is still a head
        model.fit(
            embedded.astype(np.float64)[[i for i, _, _ in parts]],
            np.array([label for _, label, _ in parts]),
            sample_weight=np.array([pairs[i].weight * (ppm / PPM) for i, _, ppm in parts]),
        )
    weight, bias = model.coef_, model.intercept_
    if n_labels == 2:  # one row of log-odds there; two rows with the same difference here
        weight, bias = np.vstack([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2])
    return Head(weight=(weight / SCALE).astype(np.float32), bias=bias.astype(np.float32))
