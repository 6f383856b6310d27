"""Labelling, pass 2: the teacher labels (or answers) every pick k times (`workers/labeling`); what it agrees on becomes
a pair; every trusted pair trains, or a part that is better (`training_set`, `pair_cuts`)."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.db.models import Sum

from backend.blobs import get_jsonl, put_jsonl
from backend.compiles.models import Candidate, Compile, Slice
from backend.compiles.states import CandidateState
from backend.domain.answers.labels import MAX_WEIGHT, Balance
from backend.domain.canonical import sha256_of
from backend.domain.errors import PaymentRequired
from backend.domain.labeling.rounds import Why
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import LabelingOut, SlicingOut
from backend.domain.spec.parsing import LabelOutput, first_votes
from backend.drafts.models import Offer
from workers.drafts.evidence.label_votes import count_label_votes
from workers.drafts.label_drafts import LABELS
from workers.gap.selection_record import without_columns
from workers.labeling.purchases import end_unpaid, label_all
from workers.labeling.reading import warn_of_inputs
from workers.labeling.rounds import purchase_facts
from workers.labeling.samples import causal_pairs, sample_facts
from workers.step.batch_planning import StepBatches
from workers.step.batch_wait import send_batches
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of
from workers.step.result import StepDone, StepWaiting, finish_step
from workers.training.extraction import plan_of
from workers.training.observations import observe, rules_of
from workers.training.pair_cuts import cut_message, cut_pairs
from workers.training.training_set import TrainingSet, training_set
from workers.training.unusable_answers import check_answers


def run_labeling(run: CompileRun) -> StepDone | StepWaiting:
    warn_of_inputs(run)
    while not label_all(run, batches := StepBatches(run=run, step=StepName.LABELING)):
        try:
            return send_batches(run, batches)
        except PaymentRequired:
            if not end_unpaid(run):
                raise
    with run.transaction():
        rows = list(
            Candidate.objects.filter(
                tenant_id=run.tenant_id, compile_id=run.compile_id, state=CandidateState.LABELED
            ).order_by("text_key")
        )
        slices = list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))
    sides = run.output(SlicingOut)
    gold = get_jsonl(run.tenant_id, sides.gold_train)
    heldout = [row["input"] for row in get_jsonl(run.tenant_id, sides.gold_heldout)]
    if not rows:
        check_answers(run)
    made = training_set(run.spec, slices, rows, gold, heldout)
    made = cut_pairs(run.spec, rows, made, lambda texts: embedder_of(run).embed(texts))
    synthetic = made.texts - {row["input"] for row in gold}
    trained = causal_pairs(run, [row for row in rows if row.text in synthetic], made.rows)
    rules, induction = rules_of(run, rows, made.rows, heldout)
    extraction, extraction_facts = plan_of(run, made.rows)
    blobs = _Blobs(
        dataset=put_jsonl(run.tenant_id, made.rows),
        completions="" if trained is None else put_jsonl(run.tenant_id, trained),
        **sample_facts(run.spec, trained or []),
        observations=observe(run, rows, made.rows, extracts=bool(extraction)),
        rules=rules,
        extraction=extraction,
        extraction_facts=extraction_facts,
        rule_induction=induction,
        random_labels=_random_labels(run, rows),
    )
    with run.transaction() as fenced:
        done = _save(run, fenced.compile, rows, synthetic, made, blobs)
        finish_step(run, fenced, StepName.LABELING, done)
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blobs:
    """Digests of what was written before the step's transaction, "" for none; the counts of `sample_facts`, and how
    rules were looked for."""

    dataset: str
    completions: str
    n_samples: int | None
    n_soft_targets: int | None
    observations: str
    rules: str
    rule_induction: dict[str, Any] | None
    random_labels: str
    extraction: str
    extraction_facts: dict[str, Any] | None


def _random_labels(run: CompileRun, rows: list[Candidate]) -> str:
    """The digest of the pairs that rounds bought at random, for a head that no choice flatters; "" where none were."""
    pairs = [{"input": row.text, "label": row.label} for row in rows if row.bought_for == Why.RANDOM]
    return put_jsonl(run.tenant_id, pairs) if pairs else ""


def _save(
    run: CompileRun,
    compile: Compile,
    rows: list[Candidate],
    kept: set[str],
    made: TrainingSet,
    blobs: _Blobs,
) -> StepDone:
    """`kept` are the texts of the teacher's pairs that train; the other pairs of the data set are gold."""
    for row in rows:
        row.move(CandidateState.TRAINED if row.text in kept else CandidateState.LEFT_OUT)
    Candidate.objects.bulk_update(rows, ["state"], batch_size=500)
    count_label_votes(run, compile)
    balanced, n_pairs = made.balanced, len(made.rows)
    if balanced is not None:
        _report_skew(run, balanced)
    if made.cuts is not None and (message := cut_message(made.cuts)):
        step = run.step(StepName.LABELING)
        run.progress(StepName.LABELING, done=step.done, total=step.total, message=message)
    unverified = Candidate.objects.filter(tenant_id=run.tenant_id, compile=compile, state=CandidateState.UNVERIFIED)
    reasons = Counter(reason for each in unverified.values_list("reasons", flat=True) for reason in each)
    labels = [[row.text_key, row.label or row.answer, row.agreement_ppm] for row in rows]
    output = LabelingOut(
        dataset=blobs.dataset,
        completions=blobs.completions,
        observations=blobs.observations,
        rules=blobs.rules,
        random_labels=blobs.random_labels,
        extraction=blobs.extraction,
        extraction_plan=blobs.extraction_facts,
        labels=sha256_of(labels),
        n_labeled=len(rows),
        n_labeled_before=_n_reused(run),
        n_unverified=unverified.count(),
        n_synthetic_pairs=len(kept),
        n_gold_pairs=n_pairs - len(kept),
        n_pairs=n_pairs,
        label_samples=first_votes(run.spec),
        balance=None if balanced is None else balanced.to_json(),
        selection=without_columns(made.selection.to_json()),
        rule_induction=blobs.rule_induction,
        unverified_for=None if isinstance(run.spec.output, LabelOutput) else dict(sorted(reasons.items())),
        cuts=made.cuts,
        n_samples=blobs.n_samples,
        n_soft_targets=blobs.n_soft_targets,
        **purchase_facts(run),
    )
    return StepDone(inputs={"picks": sha256_of([row.text_key for row in rows])}, output=output)


def _n_reused(run: CompileRun) -> int:
    """Inputs whose answers are an earlier compile's."""
    known = Offer.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, slice_position__lte=LABELS)
    return int(known.aggregate(n=Sum("n_reused"))["n"] or 0)


def _report_skew(run: CompileRun, balanced: Balance) -> None:
    n_dropped = balanced.n - len(balanced.kept)
    if n_dropped:
        run.warn(
            "label_skew", f"Labels were off the declared shares; {n_dropped} pairs were left out.", step="labeling"
        )
    if not balanced.within_tolerance:
        missing = ", ".join(f"{skew.missing} of {skew.label!r}" for skew in balanced.labels if skew.missing)
        meanwhile = {
            "report": "all pairs train as they are",
            "weight": f"pairs are weighed, those of a rare label {MAX_WEIGHT:g} times at most",
            "drop": f"balancing would have dropped {balanced.would_drop} pairs, so all train",
        }
        run.warn(
            "label_skew_remains",
            f"The labels are more than 5 points off the declared shares; {meanwhile[run.spec.sampling.balance]}. "
            f"Add captures or gold, or change the shares. Missing: {missing or 'none'}.",
            step="labeling",
        )
