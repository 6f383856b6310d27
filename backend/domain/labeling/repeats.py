"""The correlation of a teacher's answers to one input beyond what its label explains: how much it repeats itself."""

import numpy as np

from backend.domain.labeling.linear_head import Floats
from backend.domain.labeling.posteriors import Noise

ASSUMED_REPEAT, ASSUMED_PAIRS = 0.5, 20.0  # what is assumed of a teacher before it was asked twice: not measured


def repeat_of(votes: Floats, believed: Floats, noise: Noise) -> float:
    """Return the correlation, 0 to 1, by the pairs of votes on the same row.

    `votes` (n, L) counts, `believed` (n, L) posteriors of the rows. Two answers to a row agree with the chance that the
    noise gives them where each is drawn anew, and always where the teacher repeats itself; the share in between is the
    correlation, drawn towards ASSUMED_REPEAT as if ASSUMED_PAIRS pairs had shown it. Without a row of two votes it is
    that."""
    n = votes.sum(axis=1)
    asked = n >= 2
    n_pairs = (n * (n - 1) / 2)[asked]
    if not asked.any():
        return ASSUMED_REPEAT
    alike = (votes * (votes - 1) / 2).sum(axis=1)[asked]
    by_chance = (believed[asked] @ (noise.confusion**2).sum(axis=1)) * n_pairs
    room = float((n_pairs - by_chance).sum())
    seen = float((alike - by_chance).sum()) / room if room > 0 else ASSUMED_REPEAT
    total = float(n_pairs.sum())
    return float((np.clip(seen, 0.0, 1.0) * total + ASSUMED_REPEAT * ASSUMED_PAIRS) / (total + ASSUMED_PAIRS))
