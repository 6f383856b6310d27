"""The task's own verifiers, run over candidates: gates that refuse, and scores in [0, 1] that rank."""

from collections.abc import Sequence

import numpy as np

from backend.domain.patterns.matching import occurs_in
from backend.domain.spec.parsing import Spec, TextVerifier, text_verifiers
from workers.embedding.protocol import Rows

MAX_CHARS = 4_000


def check_text(text: str, heldout_keys: frozenset[str], key: str) -> tuple[str, ...]:
    """The checks every task has: something there, not too long, no control characters, not a held-out text."""
    reasons = []
    if not text.strip():
        reasons.append("empty")
    if len(text) > MAX_CHARS:
        reasons.append("too_long")
    if any(ord(c) < 32 and c not in "\n\t\r" for c in text):
        reasons.append("control_characters")
    if key in heldout_keys:
        reasons.append("held_out")
    return tuple(reasons)


def gate_reasons(spec: Spec, text: str) -> tuple[str, ...]:
    """The gating verifiers of the spec that this text fails, by kind."""
    return tuple(
        verifier.kind
        for verifier in text_verifiers(spec)
        if verifier.gate and verifier.kind != "similarity" and not _holds(verifier, text)
    )


def has_ranking(spec: Spec) -> bool:
    """Say whether a verifier of the spec, its reward apart, ranks."""
    return bool(_ranking(spec))


def _ranking(spec: Spec) -> list[TextVerifier]:
    return [verifier for verifier in text_verifiers(spec) if not verifier.gate and verifier.weight > 0]


def rank_scores(spec: Spec, texts: Sequence[str], rows: Rows, reference: Rows) -> list[float] | None:
    """The weighted mean of the spec's ranking verifiers per text, its reward apart, or None when it names none.
    `reference` (m, d) are unit rows of what the slice should look like (exemplars and training gold); similarity is the
    cosine to their mean, mapped to [0, 1]."""
    ranking = _ranking(spec)
    if not ranking:
        return None
    total = np.zeros(len(texts))
    for verifier in ranking:
        if verifier.kind == "similarity":
            total += verifier.weight * _similarity(rows, reference)
        else:
            total += verifier.weight * np.array([float(_holds(verifier, text)) for text in texts])
    return [float(value) for value in total / sum(verifier.weight for verifier in ranking)]


def _similarity(rows: Rows, reference: Rows) -> np.ndarray:
    if len(reference) == 0:
        return np.full(len(rows), 0.5)
    centre = reference.mean(axis=0)
    norm = float(np.linalg.norm(centre))
    return np.asarray((1.0 + rows @ (centre / norm if norm else centre)) / 2.0, dtype=np.float64)


def _holds(verifier: TextVerifier, text: str) -> bool:
    match verifier.kind:
        case "length":
            return verifier.min_chars <= len(text) <= verifier.max_chars
        case "regex":
            return occurs_in(verifier.pattern, text)
        case "contains":
            return any(word.casefold() in text.casefold() for word in verifier.any_of)
        case "excludes":
            return not any(word.casefold() in text.casefold() for word in verifier.any_of)
        case _:
            return True
