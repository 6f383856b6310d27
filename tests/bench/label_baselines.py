"""What a label compile has to beat: classifiers that take seconds to train, on the same pairs.

Both are logistic regressions whose C is chosen from (1, 10, 100) by three-fold cross-validation on the pairs: a
baseline with a badly set knob proves nothing. So does `frozen_answers(c=10)`, a C that happens to suit this base.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

from tests.bench.minilm import minilm

CS = (1.0, 10.0, 100.0)
FOLDS = 3


class Embeddings:
    """The untrained base's embeddings; each text is embedded once."""

    def __init__(self) -> None:
        self._rows: dict[str, NDArray[np.float32]] = {}

    def of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, d) float32, unit rows."""
        if new := sorted(set(texts) - self._rows.keys()):
            self._rows |= dict(zip(new, minilm().embed(new), strict=True))
        return np.stack([self._rows[text] for text in texts])


def majority_answers(labels: Sequence[str], n: int) -> list[str]:
    """The commonest label of the pairs, for every input."""
    return [min(Counter(labels).items(), key=lambda item: (-item[1], item[0]))[0]] * n


def tf_idf_answers(texts: Sequence[str], labels: Sequence[str], inputs: Sequence[str]) -> list[str]:
    """Words and pairs of words, weighted by TF-IDF."""
    models = [
        make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=c, max_iter=1000))
        for c in CS
    ]
    return _answers(models, np.array(texts, dtype=object), labels, np.array(inputs, dtype=object))


def frozen_answers(
    embeddings: Embeddings,
    texts: Sequence[str],
    labels: Sequence[str],
    inputs: Sequence[str],
    *,
    cs: Sequence[float] = CS,
) -> list[str]:
    """Logistic regression on the embeddings of the untrained base."""
    models = [LogisticRegression(C=c, max_iter=1000) for c in cs]
    return _answers(models, embeddings.of(texts), labels, embeddings.of(inputs))


def _answers(models: Sequence[Any], rows: Any, labels: Sequence[str], inputs: Any) -> list[str]:
    """Of the model that does best in cross-validation, fitted on all pairs."""
    wanted = np.array(labels)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The least populated class")
        scores = [cross_val_score(model, rows, wanted, cv=folds).mean() if len(models) > 1 else 1.0 for model in models]
        best = models[int(np.argmax(scores))].fit(rows, wanted)
        return [str(label) for label in best.predict(inputs)]
