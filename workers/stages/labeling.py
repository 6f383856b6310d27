"""Labelling, pass 2: the teacher labels every pick k times; what it agrees on becomes a pair; the best half of the
pairs trains.

Then the third tell of the seeds' pages: when the labels of the training set are off the declared shares by more than 5
points, classes are thinned out until they are not (`domain.labels.balance`), and what remains off is reported.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from backend.blobs import get_jsonl, put_jsonl
from backend.compiles.models import Candidate, Compile, TeacherCall
from backend.domain.candidates import text_key
from backend.domain.canonical import sha256_of
from backend.domain.errors import CustomerError
from backend.domain.gold import drop_leaks
from backend.domain.labels import Balance, LabeledPair, balance, vote
from backend.domain.lifecycle import StepName
from backend.domain.selection import SelectionReport, select
from backend.domain.selection_options import Method
from backend.domain.spec import default_k_distill, label_names, target_shares
from backend.drafts.models import Offer
from workers.durable import CompileRun
from workers.stages.label_drafts import LABELS, keep_labels, known_labels, note_labels
from workers.stages.outcome import Done, finish_step
from workers.stages.selection_record import without_columns
from workers.stages.teaching import Taught, seed_of, teaching
from workers.stages.verification import stack
from workers.teacher_calls import MadeCall, PlannedCall, call_batch
from workers.teachers.prompts import label_request, parse_label


def run_labeling(run: CompileRun) -> Done:
    _label_all(run)
    with run.fenced():
        rows = list(
            Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state="labeled").order_by(
                "text_key"
            )
        )
        digests = run.step(StepName.SLICING).output["digests"]
    gold = get_jsonl(run.tenant_id, digests["gold_train"])
    heldout = [row["input"] for row in get_jsonl(run.tenant_id, digests["gold_heldout"])]
    known = {text_key(row["input"]) for row in gold}  # where the teacher and gold disagree, gold is right
    chosen, report = _select_pairs(run, [row for row in rows if row.text_key not in known])
    pairs = [_pair(row) for row in chosen] + [_gold_pair(row) for row in gold]
    pairs = [pairs[i] for i in drop_leaks([pair.key for pair in pairs], heldout)]
    shares = _shares(run)
    balanced = None if shares is None else balance(pairs, shares)
    chosen_pairs = range(len(pairs)) if balanced is None else balanced.kept
    _check(run, [pairs[i] for i in chosen_pairs])
    dataset = put_jsonl(
        run.tenant_id, [{"input": pairs[i].key, "label": pairs[i].label, "weight": 1.0} for i in chosen_pairs]
    )
    with run.fenced() as compile:
        kept = {pairs[i].key for i in chosen_pairs}
        synthetic = kept - {row["input"] for row in gold}
        done = _save(run, compile, rows, synthetic, len(chosen_pairs), dataset, balanced, report)
        finish_step(run, compile, StepName.LABELING, done)
    return done


def _label_all(run: CompileRun) -> None:
    """Ask for k labels of every pick, a batch of picks at a time. Many servers give one choice whatever `n` says: a
    pick that has fewer than k answers is asked about again, at most k times."""
    with run.fenced():
        base = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
        todo = list(base.filter(state="picked").order_by("text_key"))
        total = len(todo) + base.filter(state__in=("labeled", "unverified")).count()
    answers = _answers_so_far(run)
    with teaching(run) as taught:
        todo = _take_known(run, todo, taught, total)
        while todo:
            part = todo[: run.spec.teacher.concurrency]

            def save(compile: Compile, calls: list[MadeCall]) -> None:
                for row, call in zip(part, calls, strict=True):  # noqa: B023 (called within the turn)
                    answers[row.text_key].append(call.choices)
                _save_votes(run, part, answers)  # noqa: B023
                keep_labels(run, [row for row in part if row.state != "picked"], answers)  # noqa: B023
                done = total - len(todo) + sum(row.state != "picked" for row in part)  # noqa: B023
                run.progress(StepName.LABELING, done=done, total=total, message=f"{done} of {total} inputs labeled")

            plans = [_label_call(run, row, answers[row.text_key]) for row in part]
            call_batch(run, StepName.LABELING, taught.teacher, taught.price, plans, save)
            todo = [row for row in todo if row.state == "picked"]


def _take_known(run: CompileRun, todo: list[Candidate], taught: Taught, total: int) -> list[Candidate]:
    """Give the inputs that the teacher labelled in an earlier compile, by the same prompt, their votes; returns the
    others."""
    with run.fenced() as compile:
        known = known_labels(run, todo)
        mine = [row for row in todo if row.text_key in known.answers]
        if mine:
            _save_votes(run, mine, {row.text_key: [known.answers[row.text_key]] for row in mine})
            note_labels(run, compile, known, len(todo) - len(mine), taught.price)
            message = f"{len(mine)} of {total} inputs were labeled before"
            run.progress(StepName.LABELING, done=total - len(todo) + len(mine), total=total, message=message)
    return [row for row in todo if row.state == "picked"]


Answers = list[list[dict[str, Any]]]  # of one text: the choices of each call


def _answers_so_far(run: CompileRun) -> defaultdict[str, Answers]:
    """By text_key: where an earlier process stopped in the middle of a text's calls."""
    answers: defaultdict[str, Answers] = defaultdict(list)
    with run.fenced():
        calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state="applied")
        for key, choices in calls.filter(step=StepName.LABELING).order_by("started_at").values_list("key", "choices"):
            answers[key.split(":")[1]].append(choices)
    return answers


def _label_call(run: CompileRun, row: Candidate, answers: Answers) -> PlannedCall:
    again = [str(len(answers))] if answers else []
    return PlannedCall(
        key=":".join(["labeling", row.text_key, *again]),
        request=label_request(
            run.spec,
            row.text,
            n=run.spec.sampling.label_samples - sum(map(len, answers)),
            temperature=run.spec.sampling.temperature_labels,
            seed=seed_of(run, "labels", row.text_key, *again),
        ),
    )


def _save_votes(run: CompileRun, rows: Sequence[Candidate], answers: Mapping[str, Answers]) -> None:
    """The votes of the texts that have all their answers; the others stay picked."""
    allowed, n_samples = label_names(run.spec), run.spec.sampling.label_samples
    for row in rows:
        choices = [choice for call in answers[row.text_key] for choice in call]
        if max(len(choices), len(answers[row.text_key])) < n_samples:
            continue
        result = vote([parse_label(choice["text"], allowed) for choice in choices], allowed)
        is_agreed = result.reaches(run.spec.sampling.min_agreement)
        row.label = result.label or ""
        row.votes = dict(result.counts)
        row.agreement_ppm = result.agreement_ppm
        row.state = "labeled" if is_agreed else "unverified"
    Candidate.objects.bulk_update(rows, ["label", "votes", "agreement_ppm", "state"])


def _select_pairs(run: CompileRun, rows: Sequence[Candidate]) -> tuple[list[Candidate], SelectionReport]:
    """The second selection, K = ceil(N/2) over the labelled pairs, per label so that no class is selected away; score =
    agreement."""
    n, labels = len(rows), [row.label for row in rows]
    k_wanted = min(n, run.spec.sampling.k_distill or default_k_distill(n))
    selection = select(
        stack([row.embedding for row in rows]),
        [(row.agreement_ppm or 0) / 1_000_000 for row in rows],
        [row.text_key for row in rows],
        k=max(k_wanted, len(set(labels))),
        labels=labels,
        method=Method.ALL if _trains_on_all(run) else Method.TWO_STEP,
        score_floor=0.0,  # what the teacher does not agree on is not here
    )
    return [rows[i] for i in selection.picks], selection.report


def _trains_on_all(run: CompileRun) -> bool:
    """The baseline without selection: no K was asked for either time."""
    return Method(run.spec.sampling.method) is Method.ALL and run.spec.sampling.k_distill is None


def _pair(row: Candidate) -> LabeledPair:
    return LabeledPair(key=row.text, label=row.label, agreement=Fraction(row.agreement_ppm or 0, 1_000_000))


def _gold_pair(row: dict[str, str]) -> LabeledPair:
    return LabeledPair(key=row["input"], label=row["output"])


def _shares(run: CompileRun) -> dict[str, float] | None:
    """The declared shares: of the labels, else of the slices when each names its label; None when the spec declares
    nothing."""
    spec = run.spec
    if any(getattr(label, "share", None) is not None for label in getattr(spec.output, "labels", ())):
        return target_shares(spec)
    if spec.slices and all(part.label for part in spec.slices):
        shares = dict.fromkeys(label_names(spec), 0.0)
        for part in spec.slices:
            shares[part.label or ""] += part.share
        total = math.fsum(shares.values())  # a spec's shares may be off by a hundredth: 0.33 three times
        return {name: share / total for name, share in shares.items()}
    return None


def _check(run: CompileRun, pairs: Sequence[LabeledPair]) -> None:
    missing = sorted(set(label_names(run.spec)) - {pair.label for pair in pairs})
    if missing:
        raise CustomerError(
            f"No training pair has the label {missing[0]!r}"
            + (f" (nor {len(missing) - 1} others)" if len(missing) > 1 else "")
            + ". Add gold examples or a slice for it, or take the label out.",
            code="label_without_pairs",
        )


def _save(
    run: CompileRun,
    compile: Compile,
    rows: list[Candidate],
    kept: set[str],
    n_pairs: int,
    dataset: str,
    balanced: Balance | None,
    report: SelectionReport,
) -> Done:
    """`kept` are the texts of the teacher's pairs that train; the other pairs of the data set are gold."""
    for row in rows:
        row.state = "trained" if row.text in kept else "left_out"
    Candidate.objects.bulk_update(rows, ["state"], batch_size=500)
    if balanced is not None:
        _report_skew(run, balanced)
    n_unverified = Candidate.objects.filter(tenant_id=run.tenant_id, compile=compile, state="unverified").count()
    facts: dict[str, Any] = {
        "n_labeled": len(rows),
        "n_labeled_before": _n_reused(run),
        "n_unverified": n_unverified,
        "n_synthetic_pairs": len(kept),
        "n_gold_pairs": n_pairs - len(kept),
        "n_pairs": n_pairs,
        "label_samples": run.spec.sampling.label_samples,
        "balance": None if balanced is None else balanced.to_json(),
        "selection": without_columns(report.to_json()),
    }
    labels = [[row.text_key, row.label, row.agreement_ppm] for row in rows]
    return Done(
        inputs={"picks": sha256_of([row.text_key for row in rows])},
        outputs={"dataset": dataset, "labels": sha256_of(labels)},
        facts=facts,
    )


def _n_reused(run: CompileRun) -> int:
    """Inputs whose answers are an earlier compile's."""
    known = Offer.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, slice_position=LABELS).first()
    return 0 if known is None else int(known.n_reused)


def _report_skew(run: CompileRun, balanced: Balance) -> None:
    n_dropped = balanced.n - len(balanced.kept)
    if n_dropped:
        run.warn(
            "label_skew", f"Labels were off the declared shares; {n_dropped} pairs were left out.", step="labeling"
        )
    if not balanced.within_tolerance:
        missing = ", ".join(f"{skew.missing} of {skew.label!r}" for skew in balanced.labels if skew.missing)
        run.warn(
            "label_skew_remains",
            "The labels are more than 5 points off the declared shares; balancing would have dropped "
            f"{balanced.would_drop} pairs. Add captures or gold, or change the shares. Missing: {missing or 'none'}.",
            step="labeling",
        )
