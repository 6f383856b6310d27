"""Labelling, pass 2: the teacher labels (or answers) every pick k times; what it agrees on becomes a pair; the best
half of the pairs trains (`training_set`)."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.blobs import get_jsonl, put_jsonl
from backend.compiles.models import Candidate, Compile, Slice, TeacherCall
from backend.compiles.states import CallState, CandidateState
from backend.domain.answers.labels import MAX_WEIGHT, Balance, vote
from backend.domain.canonical import sha256_of
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import LabelingOut, SlicingOut
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.defaults import dialect_of, train_kind
from backend.domain.spec.parsing import LabelOutput, Spec, TextOutput, label_names
from backend.drafts.models import Offer
from workers.drafts.label_drafts import LABELS, keep_labels, known_labels, note_labels
from workers.gap.selection_record import without_columns
from workers.step.batch_planning import StepBatches
from workers.step.batch_wait import send_batches
from workers.step.durable import CompileRun
from workers.step.result import StepDone, StepWaiting, finish_step
from workers.step.teacher_calls import MadeCall, PlannedCall, call_batch
from workers.step.teacher_session import TeacherSession, seed_of, teacher_session
from workers.teachers.prompts.answer import item_request
from workers.teachers.prompts.candidate_and_label import parse_label
from workers.teachers.protocol import CompletionRequest
from workers.training.observations import observe, rules_of
from workers.training.training_set import TrainingSet, completions, training_set
from workers.training.unusable_answers import check_answers
from workers.training.votes import agree

_VOTED = ["label", "answer", "votes", "agreement_ppm", "reasons", "state"]


def run_labeling(run: CompileRun) -> StepDone | StepWaiting:
    batches = StepBatches(run=run, step=StepName.LABELING)
    if not _label_all(run, batches):
        return send_batches(run, batches)
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
    is_completed = isinstance(run.spec.output, LabelOutput) and train_kind(run.spec) != TrialKind.ENCODER
    rules, induction = rules_of(run, rows, made.rows, heldout)
    blobs = _Blobs(
        dataset=put_jsonl(run.tenant_id, made.rows),
        completions=put_jsonl(run.tenant_id, completions(made.rows)) if is_completed else "",
        observations=observe(run, rows, made.rows),
        rules=rules,
        rule_induction=induction,
    )
    with run.transaction() as fenced:
        synthetic = made.texts - {row["input"] for row in gold}
        done = _save(run, fenced.compile, rows, synthetic, made, blobs)
        finish_step(run, fenced, StepName.LABELING, done)
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blobs:
    """Digests of what was written before the step's transaction, "" for none; and how rules were looked for."""

    dataset: str
    completions: str
    observations: str
    rules: str
    rule_induction: dict[str, Any] | None


def _label_all(run: CompileRun, batches: StepBatches) -> bool:
    """Ask for k labels of every pick, a batch of calls at a time. Many servers give one choice whatever `n` says: a
    pick that has fewer than k answers is asked about again, at most k times, and by several calls at once where one is
    known to give too few. False where the rest waits for a teacher's batch."""
    with run.transaction():
        base = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
        todo = list(base.filter(state=CandidateState.PICKED).order_by("text_key"))
        total = len(todo) + base.filter(state__in=(CandidateState.LABELED, CandidateState.UNVERIFIED)).count()
    answers = _answers_so_far(run)
    per_call = dialect_of(run.spec.teacher).max_n
    with teacher_session(run) as session:
        todo = _take_known(run, todo, session, total)
        while todo:
            part = todo[: run.spec.teacher.concurrency]
            _save_votes(run, part, answers)  # a process may have died between their last answer and this
            todo = [row for row in todo if row.state == CandidateState.PICKED]
            batch = _next_calls(run, todo, answers, per_call=per_call, width=run.spec.teacher.concurrency)

            def save(compile: Compile, calls: list[MadeCall]) -> None:
                for (row, _), call in zip(batch, calls, strict=True):  # noqa: B023 (called within the turn)
                    answers[row.text_key].append(call.choices)

            def all_plans() -> list[PlannedCall]:
                width = len(todo) * run.spec.sampling.label_samples  # noqa: B023 (called within the turn)
                return [plan for _, plan in _next_calls(run, todo, answers, per_call=per_call, width=width)]  # noqa: B023

            if batch:
                plans = [plan for _, plan in batch]
                if batches.defers(session, plans, all_plans):
                    return False
                call_batch(run, StepName.LABELING, session.teacher, session.price, plans, save)
                per_call = _choices_a_call(batch, answers, per_call)
            _save_votes(run, list(dict.fromkeys(row for row, _ in batch)), answers)
            todo = [row for row in todo if row.state == CandidateState.PICKED]
            with run.transaction():
                done = total - len(todo)
                run.progress(StepName.LABELING, done=done, total=total, message=f"{done} of {total} inputs labeled")
    return True


def _take_known(run: CompileRun, todo: list[Candidate], session: TeacherSession, total: int) -> list[Candidate]:
    """Give the inputs that the teacher labelled in an earlier compile, by the same prompt, their votes; returns the
    others."""
    with run.transaction():
        known = known_labels(run, todo)
    mine = [row for row in todo if row.text_key in known.answers]
    if mine:
        _vote(run.spec, mine, {row.text_key: [known.answers[row.text_key]] for row in mine})
        with run.transaction() as fenced:
            Candidate.objects.bulk_update(mine, _VOTED)
            note_labels(run, fenced.compile, known, len(todo) - len(mine), session.price)
            message = f"{len(mine)} of {total} inputs were labeled before"
            run.progress(StepName.LABELING, done=total - len(todo) + len(mine), total=total, message=message)
    return [row for row in todo if row.state == CandidateState.PICKED]


Answers = list[list[dict[str, Any]]]  # of one text: the choices of each call


def _answers_so_far(run: CompileRun) -> defaultdict[str, Answers]:
    """The answers by text_key that an earlier process left when it stopped in the middle of a text's calls."""
    answers: defaultdict[str, Answers] = defaultdict(list)
    with run.transaction():
        calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state=CallState.APPLIED)
        for key, choices in calls.filter(step=StepName.LABELING).order_by("started_at").values_list("key", "choices"):
            answers[key.split(":")[1]].append(choices)
    return answers


def _next_calls(
    run: CompileRun, rows: Sequence[Candidate], answers: Mapping[str, Answers], *, per_call: int, width: int
) -> list[tuple[Candidate, PlannedCall]]:
    """The calls of the next batch with the pick that each asks about: the first picks' missing answers, `per_call` a
    call, `width` calls at most."""
    batch: list[tuple[Candidate, PlannedCall]] = []
    for row in rows:
        n_calls, missing = len(answers[row.text_key]), run.spec.sampling.label_samples
        missing -= max(n_calls, sum(map(len, answers[row.text_key])))
        while missing > 0 and len(batch) < width:
            n = min(per_call, missing)
            batch.append((row, _label_call(run, row, n, nth=n_calls)))
            missing, n_calls = missing - n, n_calls + 1
        if len(batch) == width:
            break
    return batch


def _choices_a_call(
    batch: Sequence[tuple[Candidate, PlannedCall]], answers: Mapping[str, Answers], per_call: int
) -> int:
    """The number of choices to ask a call for next: as many as the batch's calls gave, where one gave fewer than it was
    asked for."""
    sizes = [per_call]
    left = {row.text_key: list(answers[row.text_key]) for row, _ in batch}
    for row, plan in reversed(batch):
        n_choices = len(left[row.text_key].pop())
        asked = plan.request.n if isinstance(plan.request, CompletionRequest) else n_choices
        if n_choices < asked:
            sizes.append(max(1, n_choices))
    return min(sizes)


def _label_call(run: CompileRun, row: Candidate, n: int, *, nth: int) -> PlannedCall:
    again = [str(nth)] if nth else []
    return PlannedCall(
        key=":".join(["labeling", row.text_key, *again]),
        request=item_request(
            run.spec,
            row.text,
            n=n,
            temperature=run.spec.sampling.temperature_labels,
            seed=seed_of(run, "labels", row.text_key, *again),
        ),
    )


def _save_votes(run: CompileRun, rows: Sequence[Candidate], answers: Mapping[str, Answers]) -> None:
    """Save the votes of the texts that have all their answers; the others stay picked."""
    n_samples = run.spec.sampling.label_samples
    full = [r for r in rows if max(sum(map(len, answers[r.text_key])), len(answers[r.text_key])) >= n_samples]
    if not full:
        return
    _vote(run.spec, full, answers)
    run.stop.check()
    with run.transaction():
        Candidate.objects.bulk_update(full, _VOTED)
        keep_labels(run, full, answers)


def _vote(spec: Spec, rows: Sequence[Candidate], answers: Mapping[str, Answers]) -> None:
    """Let the answers vote, outside a transaction: a customer's checks take their time."""
    replies = [[_reply(spec, choice) for call in answers[row.text_key] for choice in call] for row in rows]
    if not isinstance(spec.output, LabelOutput):
        for row, agreed in zip(rows, agree(spec, list(zip([r.text for r in rows], replies, strict=True))), strict=True):
            row.answer, row.votes, row.agreement_ppm = agreed.answer, agreed.votes, agreed.agreement_ppm
            row.reasons = agreed.reasons
            row.move(CandidateState.LABELED if agreed.is_verified else CandidateState.UNVERIFIED)
        return
    allowed = label_names(spec)
    for row, texts in zip(rows, replies, strict=True):
        result = vote([parse_label(text, allowed) for text in texts], allowed)
        row.label, row.votes, row.agreement_ppm = result.label or "", dict(result.counts), result.agreement_ppm
        is_verified = result.reaches(spec.sampling.min_agreement)
        row.move(CandidateState.LABELED if is_verified else CandidateState.UNVERIFIED)


def _reply(spec: Spec, choice: Mapping[str, Any]) -> str:
    """The text of a choice. One that reached its limit, or that a filter ended, ends in the middle: a text answer is
    none then, and the last word of a label answer may be the beginning of a longer label."""
    text, is_cut = str(choice["text"]), choice.get("finish_reason") in ("length", "content_filter")
    if is_cut and isinstance(spec.output, TextOutput):
        return ""
    return f"{text}…" if is_cut and isinstance(spec.output, LabelOutput) else text


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
    balanced, n_pairs = made.balanced, len(made.rows)
    if balanced is not None:
        _report_skew(run, balanced)
    unverified = Candidate.objects.filter(tenant_id=run.tenant_id, compile=compile, state=CandidateState.UNVERIFIED)
    reasons = Counter(reason for each in unverified.values_list("reasons", flat=True) for reason in each)
    labels = [[row.text_key, row.label or row.answer, row.agreement_ppm] for row in rows]
    output = LabelingOut(
        dataset=blobs.dataset,
        completions=blobs.completions,
        observations=blobs.observations,
        rules=blobs.rules,
        labels=sha256_of(labels),
        n_labeled=len(rows),
        n_labeled_before=_n_reused(run),
        n_unverified=unverified.count(),
        n_synthetic_pairs=len(kept),
        n_gold_pairs=n_pairs - len(kept),
        n_pairs=n_pairs,
        label_samples=run.spec.sampling.label_samples,
        balance=None if balanced is None else balanced.to_json(),
        selection=without_columns(made.selection.to_json()),
        rule_induction=blobs.rule_induction,
        unverified_for=None if isinstance(run.spec.output, LabelOutput) else dict(sorted(reasons.items())),
    )
    return StepDone(inputs={"picks": sha256_of([row.text_key for row in rows])}, output=output)


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
