"""The candidates of a compile and its training gold as rounds of labelling see them: places in the embedder's space,
and what is known of their labels."""

from dataclasses import dataclass

import numpy as np

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate
from backend.compiles.states import CandidateState
from backend.domain.answers.candidates import text_key
from backend.domain.labeling.folds import fold_of
from backend.domain.labeling.label_scores import LEAST
from backend.domain.labeling.linear_head import Flags, Floats, Ints
from backend.domain.labeling.rounds import RoundPool
from backend.domain.planning.step_outputs import SlicingOut
from backend.domain.spec.parsing import label_names
from workers.candidates.ranking import stack
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of

IN_POOL = (CandidateState.PICKED, CandidateState.DROPPED, CandidateState.LABELED, CandidateState.UNVERIFIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """`points` are the candidates of `keys`, by text_key, then the gold rows, whose labels are `gold` (g,); `folds`
    (n + g,) for cross-validation, near-duplicates in one."""

    keys: list[str]
    gold: Ints
    points: RoundPool
    folds: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPool:
    """The pool as it is now. `rows` are the candidates in the order of `places.keys`; `votes` (n + g, L) the teacher's
    on each row; a gold row has none. `scores` (n + g, L) are the teacher's log-probs of the labels, NaN where it gave
    none. `labels` are the spec's."""

    places: Places
    labels: list[str]
    rows: list[Candidate]
    votes: Floats
    scores: Floats

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def is_gold(self) -> Flags:
        return np.arange(len(self.votes)) >= self.n

    @property
    def gold_targets(self) -> Floats:
        """`(g, L)` one-hot."""
        return np.asarray(np.eye(len(self.labels))[self.places.gold])

    @property
    def gold_twins(self) -> Ints:
        """`(n + g,)` the label of a gold row of the same near-duplicate group, -1 where there is none."""
        groups = self.places.points.groups
        of = dict(zip(groups[self.n :].tolist(), self.places.gold.tolist(), strict=True))
        return np.array([of.get(group, -1) for group in groups[: self.n].tolist()] + [-1] * len(self.places.gold))

    @property
    def is_open(self) -> Flags:
        """`(n + g,)` the rows that a round may buy."""
        return np.array([row.state == CandidateState.DROPPED for row in self.rows] + [False] * len(self.places.gold))


def place(run: CompileRun) -> Places:
    """Embed the gold and look for near-duplicates: once a process, since neither changes while labels come."""
    gold = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_train)
    with run.transaction():
        rows = list(_in_pool(run).values_list("text_key", "embedding"))
    vectors = [stack([vector for _, vector in rows])] if rows else []
    if gold:
        vectors.append(embedder_of(run).embed([row["input"] for row in gold]))
    names = label_names(run.spec)
    keys = [key for key, _ in rows]
    all_keys = [*keys, *(f"gold {text_key(row['input'])}" for row in gold)]
    points = RoundPool.of(np.concatenate(vectors).astype(np.float64), all_keys)
    return Places(
        keys=keys,
        gold=np.array([names.index(row["output"]) for row in gold], dtype=np.int64),
        points=points,
        folds=fold_of(all_keys, points.groups),
    )


def read_pool(run: CompileRun, places: Places) -> LabelPool:
    """The pool with what the rows hold now."""
    with run.transaction():
        rows = list(_in_pool(run).defer("embedding", "tokens", "token_logprobs"))
    labels = label_names(run.spec)
    votes = np.zeros((len(rows) + len(places.gold), len(labels)))
    scores = np.full(votes.shape, np.nan)
    at = {label: i for i, label in enumerate(labels)}
    for i, row in enumerate(rows):
        for label, n in row.votes.items():
            votes[i, at[label]] = n
        if row.label_logprobs:
            scores[i] = [row.label_logprobs.get(label, LEAST) for label in labels]
    return LabelPool(places=places, labels=labels, rows=rows, votes=votes, scores=scores)


def _in_pool(run: CompileRun):  # type: ignore[no-untyped-def]  # a query set of Django's
    rows = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state__in=IN_POOL)
    return rows.exclude(embedding=None).order_by("text_key")
