"""Which rows a round of labelling buys."""

import numpy as np

from backend.compiles.models import Candidate
from backend.domain.labeling.linear_head import Flags, Ints
from backend.domain.labeling.rounds import Why, next_rows, random_order
from backend.domain.spec.outputs import Label, LabelOutput
from workers.labeling.posteriors import Weighed
from workers.labeling.warnings import is_guessing, missing_labels
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of

NEAR_A_LABEL = 2  # rows nearest to the description of a label that no row has


def rows_to_buy(
    run: CompileRun, weighed: Weighed, is_open: Flags, m: int, *, is_first: bool
) -> list[tuple[Candidate, Why]]:
    """The next `m` rows with the reason of each, all of fewer. In the first round those nearest to a label that no row
    has come before all others; where a student learns nothing from the labels they are drawn at random."""
    rows, seed = weighed.pool.rows, run.spec.sampling.seed
    near = _near_missing(run, weighed, is_open)[:m] if is_first else []
    is_left = is_open.copy()
    is_left[near] = False
    bought = [(rows[at], Why.RARE) for at in near]
    if is_guessing(weighed):
        order = random_order(weighed.pool.places.points.keys, seed)
        return bought + [(rows[at], Why.RANDOM) for at in order[is_left[order]].tolist()[: m - len(near)]]
    picks = next_rows(
        weighed.pool.places.points,
        weighed.probabilities(),
        is_left,
        m - len(near),
        n_by_label=weighed.n_by_label,
        seed=seed,
    )
    return bought + [(rows[at], why) for at, why in zip(picks.rows.tolist(), picks.why, strict=True)]


def _near_missing(run: CompileRun, weighed: Weighed, is_open: Flags) -> list[int]:
    """The open rows nearest to name and description of each label that no row has."""
    missing = missing_labels(weighed)
    if not missing or not isinstance(run.spec.output, LabelOutput):
        return []
    texts = [_text(label) for label in run.spec.output.labels if label.name in missing]
    near = embedder_of(run).embed(texts).astype(np.float64) @ weighed.pool.places.points.rows.T
    near[:, ~is_open] = -np.inf
    nearest: Ints = np.argsort(-near, axis=1, kind="stable")[:, :NEAR_A_LABEL]
    return [at for at in dict.fromkeys(nearest.T.ravel().tolist()) if is_open[at]]


def _text(label: Label) -> str:
    return " ".join(part for part in (label.name.replace("_", " "), label.description) if part)
