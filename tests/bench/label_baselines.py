"""What a label compile has to beat: classifiers that take seconds to train, on the same pairs.

Both are logistic regressions whose C is chosen from (1, 10, 100) by three-fold cross-validation on the pairs: a
baseline with a badly set knob proves nothing.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

from workers.embedding.sentence import load_embedder

CS = (1.0, 10.0, 100.0)
FOLDS = 3


def majority(labels: Sequence[str], n: int) -> list[str]:
    """The commonest label of the pairs, for every input."""
    return [min(Counter(labels).items(), key=lambda item: (-item[1], item[0]))[0]] * n


def tf_idf_answers(texts: Sequence[str], labels: Sequence[str], inputs: Sequence[str]) -> list[str]:
    """Words and pairs of words, weighted by TF-IDF."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    return _answers(vectorizer, np.array(texts, dtype=object), labels, np.array(inputs, dtype=object))


def frozen_answers(texts: Sequence[str], labels: Sequence[str], inputs: Sequence[str]) -> list[str]:
    """The embeddings of the untrained base."""
    embedder = load_embedder()
    return _answers(None, embedder.embed(list(texts)), labels, embedder.embed(list(inputs)))


def _answers(vectorizer: Any, rows: Any, labels: Sequence[str], inputs: Any) -> list[str]:
    wanted = np.array(labels)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The least populated class")  # a label with two pairs
        models = [_model(vectorizer, c) for c in CS]
        scores = [cross_val_score(model, rows, wanted, cv=folds).mean() for model in models]
        best = models[int(np.argmax(scores))].fit(rows, wanted)
        return [str(label) for label in best.predict(inputs)]


def _model(vectorizer: Any, c: float) -> Any:
    regression = LogisticRegression(C=c, max_iter=1000)
    return regression if vectorizer is None else make_pipeline(vectorizer, regression)
