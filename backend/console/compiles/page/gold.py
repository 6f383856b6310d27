"""The data of a compile in short: its gold and who held out what, its labels with their shares."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Compile
from backend.compiles.states import LABELED_STATES, CandidateState
from backend.domain.errors import NotFound
from backend.domain.number_words import percent
from backend.domain.planning.step_outputs import SlicingOut
from backend.domain.spec.parsing import Spec, read_stored_spec

MAX_COUNTED = 50_000  # gold rows that are read to count their labels
MAX_LABELS = 200
PPM = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldData:
    """The gold of a compile; `who` says who decided what is held out. `labels` counts the gold that trains by label;
    None where it is too much to count, or gone by age."""

    n_train: int
    n_heldout: int
    n_left_out: int
    n_captures: int
    who: str
    labels: Counter[str] | None

    @property
    def n(self) -> int:
        return self.n_train + self.n_heldout


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    """One label: the share that the spec wants, and how many rows have it; None where that is not known yet."""

    name: str
    description: str
    wanted_ppm: int | None
    n_gold: int | None
    n_heldout: int | None
    n_labeled: int
    labeled_ppm: int | None


def gold_of(row: Compile, sliced: SlicingOut) -> GoldData:
    return GoldData(
        n_train=sliced.n_gold_train,
        n_heldout=sliced.n_gold_heldout,
        n_left_out=sliced.n_gold_left_out or 0,
        n_captures=sliced.n_captures,
        who=_who(sliced, read_stored_spec(row.spec)),
        labels=_labels_in(row, sliced) if row.spec["output"]["type"] == "label" else None,
    )


def label_rows(row: Compile, gold: GoldData | None) -> list[LabelRow]:
    """The labels in the order of the spec; none where answers are no labels."""
    output = row.spec["output"]
    if output["type"] != "label":
        return []
    labeled = _count_labeled(row)
    n_labeled = sum(labeled.values())
    heldout = {one["label"]: one["n"] for one in (row.evaluation or {}).get("per_class", [])}
    trains = None if gold is None else gold.labels
    return [
        LabelRow(
            name=label["name"],
            description=label.get("description") or "",
            wanted_ppm=None if label.get("share") is None else round(label["share"] * PPM),
            n_gold=None if trains is None else trains[label["name"]],
            n_heldout=heldout.get(label["name"]),
            n_labeled=labeled[label["name"]],
            labeled_ppm=labeled[label["name"]] * PPM // n_labeled if n_labeled else None,
        )
        for label in output["labels"][:MAX_LABELS]
    ]


def _who(sliced: SlicingOut, spec: Spec) -> str:
    if sliced.is_heldout_named:
        return "Your examples name the held-out ones themselves (split: heldout)."
    share = percent(round(spec.examples.holdout * PPM))
    return (
        f"kolm held out {share} of the examples, label by label, by a secret of this team: every compile of this name "
        "holds out the same ones. To choose them yourself, give examples split: heldout."
    )


def _labels_in(row: Compile, sliced: SlicingOut) -> Counter[str] | None:
    if not sliced.gold_train or sliced.n_gold_train > MAX_COUNTED:
        return None
    try:
        return Counter(str(one.get("output")) for one in get_jsonl(row.tenant_id, sliced.gold_train))
    except NotFound:
        return None


def _count_labeled(row: Compile) -> Counter[str]:
    states = LABELED_STATES - {CandidateState.UNVERIFIED}
    mine = Candidate.objects.of_tenant(row.tenant_id).filter(compile=row, state__in=states)
    counted: list[tuple[Any, int]] = list(mine.values_list("label").annotate(n=Count("id")).order_by())
    return Counter({str(label): n for label, n in counted if label})
