"""The alternatives beside a trial's model, on the same held-out rows; and the teacher, asked for its own answers.

The teacher is asked once, about the rows that the estimate counted, after the trials: nothing is decided on what it
says and nothing trains on it. A call is named by the input, so that a resumed compile asks nothing again. What goes
wrong here ends no compile: the rows that were answered count, and the reason stands beside them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from backend.blobs import get_jsonl
from backend.domain.canonical import sha256_hex
from backend.domain.errors import InvalidSpec, NotFound, PaymentRequired
from backend.domain.evaluation.alternatives import Alternative, AlternativeName, compare_marks, label_alternatives
from backend.domain.evaluation.classification import PPM
from backend.domain.evaluation.generative import are_right, json_marks, typical_answer
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import LabelingOut, SlicingOut
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.parsing import JsonOutput, LabelOutput, Spec, TextOutput, label_names
from workers.scoring.answer_checks import failed_checks
from workers.step.durable import CompileRun
from workers.step.teacher_calls import PlannedCall, ask_batch
from workers.step.teacher_session import TeacherSession, seed_of, teacher_session
from workers.teachers.prompts.answer import item_request, parse_answer_choice
from workers.teachers.prompts.candidate_and_label import parse_label
from workers.teachers.protocol import TeacherFailed
from workers.training.measurement import Measurement, TeacherAnswers

Rows = list[dict[str, str]]
HELD_OUT_CALLS = "beside:"  # how the journal's keys of the calls begin that ask about held-out inputs
BASELINES = {
    TrialKind.ENCODER: AlternativeName.FROZEN,
    TrialKind.SPANS: AlternativeName.FROZEN_SPANS,
    TrialKind.CAUSAL: AlternativeName.BASE,
}


def alternatives_of(run: CompileRun, measured: Measurement) -> tuple[Alternative, ...]:
    """The alternatives that were measured, each with the interval of the model's difference to it."""
    heldout: Rows = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_heldout)
    output = run.spec.output
    if isinstance(output, TextOutput) and output.accuracy == "judge":
        return ()  # the judge would have to be asked about each
    if isinstance(output, LabelOutput):
        n_trained = {
            AlternativeName.FROZEN: run.output(LabelingOut).n_pairs,
            AlternativeName.FROZEN_RANDOM: measured.n_random,
        }
        return _of_labels(run.spec, [row["output"] for row in heldout], measured, n_trained)
    return _of_answers(run.spec, heldout, measured)


def _of_labels(
    spec: Spec, gold: list[str], measured: Measurement, n_trained: Mapping[AlternativeName, int | None]
) -> tuple[Alternative, ...]:
    others: dict[AlternativeName, list[str]] = {BASELINES[measured.kind]: measured.baseline_predictions}
    if measured.random_predictions:
        others[AlternativeName.FROZEN_RANDOM] = measured.random_predictions
    if measured.gold_predictions:
        others[AlternativeName.GOLD_ONLY] = measured.gold_predictions
    confidence = spec.gate.confidence
    made = label_alternatives(gold, measured.predictions, others, confidence=confidence, n_trained=n_trained)
    if (asked := measured.teacher) is None or not asked.rows:
        return made
    truths = [gold[i] for i in asked.rows]
    ours = [measured.predictions[i] for i in asked.rows]
    theirs = {AlternativeName.TEACHER: asked.answers}
    return (*made, *label_alternatives(truths, ours, theirs, confidence=confidence)[1:])


def _of_answers(spec: Spec, heldout: Rows, measured: Measurement) -> tuple[Alternative, ...]:
    """The alternatives of a json task, or of a text task without a judge: its checks say nothing of a constant
    answer."""
    gold, n = [row["output"] for row in heldout], len(heldout)
    ours = _marks(spec, gold, measured.predictions, measured.failed or [[]] * n)
    others = {BASELINES[measured.kind]: _marks(spec, gold, measured.baseline_predictions, measured.baseline_failed)}
    if measured.common_answer:
        others[AlternativeName.COMMON_ANSWER] = _marks(spec, gold, [measured.common_answer] * n, None)
    made = [compare_marks(name, ours, theirs, confidence=spec.gate.confidence) for name, theirs in others.items()]
    if (asked := measured.teacher) is not None and asked.rows:
        theirs = _marks(spec, [gold[i] for i in asked.rows], asked.answers, asked.failed)
        mine = [ours[i] for i in asked.rows]
        made.append(compare_marks(AlternativeName.TEACHER, mine, theirs, confidence=spec.gate.confidence))
    return tuple(made)


def _marks(spec: Spec, gold: list[str], answers: list[str], failed: Sequence[Sequence[str]] | None) -> list[int]:
    """Mark the answers; without `failed` they are held to the schema alone."""
    passed = None if failed is None else [not why for why in failed]
    if isinstance(spec.output, JsonOutput):
        return json_marks(spec.output, gold, answers, passed=passed)
    assert isinstance(spec.output, TextOutput)
    return [PPM * ok for ok in are_right(spec.output, gold, answers, passed or [True] * len(answers))]


def common_answer(spec: Spec, dataset: Sequence[dict[str, Any]]) -> str | None:
    """The most typical answer of a json task's training pairs, of a text task with exact answers the commonest."""
    answers = [row["output"] for row in dataset if "output" in row]
    if isinstance(spec.output, JsonOutput):
        return typical_answer(answers)
    is_exact = isinstance(spec.output, TextOutput) and spec.output.accuracy == "exact"
    return Counter(answers).most_common(1)[0][0] if is_exact and answers else None


def with_teacher(run: CompileRun, measured: Measurement) -> Measurement:
    """The measurement with the teacher's own answers to the held-out rows that the estimate counted."""
    heldout: Rows = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_heldout)
    with run.transaction() as fenced:
        n = min(int(fenced.compile.estimate.get("teacher_rows", 0)), len(heldout))
    if n == 0:
        return measured
    rows = [i * len(heldout) // n for i in range(n)]
    texts = [heldout[i]["input"] for i in rows]
    replies, why_not = _ask(run, list(dict.fromkeys(texts)))  # one text may stand there under two answers
    answers = [_read(run.spec, replies[text]) for text in takewhile(replies.__contains__, texts)]
    rows = rows[: len(answers)]
    failed = None
    if not isinstance(run.spec.output, LabelOutput) and rows:
        pairs = [(heldout[i]["input"], answer) for i, answer in zip(rows, answers, strict=True)]
        failed = failed_checks(run.spec.output, pairs)
    return replace(measured, teacher=TeacherAnswers(rows=rows, answers=answers, failed=failed, why_not=why_not))


def _ask(run: CompileRun, texts: Sequence[str]) -> tuple[dict[str, str], str]:
    """The teacher's reply to each of these different texts, up to the first batch that could not be asked; and why it
    could not, be it that the teacher's key was deleted since."""
    replies: dict[str, str] = {}
    width = run.spec.teacher.concurrency
    try:
        with teacher_session(run) as session:
            for first in range(0, len(texts), width):
                _ask_some(run, session, texts, replies, texts[first : first + width])
    except (InvalidSpec, NotFound, PaymentRequired, TeacherFailed) as error:
        return replies, error.code
    return replies, ""


def _ask_some(
    run: CompileRun, session: TeacherSession, texts: Sequence[str], replies: dict[str, str], part: Sequence[str]
) -> None:
    """Ask about `part` of the texts, and add the replies."""
    plans = [_call(run, text) for text in part]
    made = ask_batch(run, StepName.EVALUATION, session.teacher, session.price, plans)
    replies.update((text, call.choices[0]["text"]) for text, call in zip(part, made, strict=True))
    with run.transaction():
        done = len(replies)
        message = f"the teacher answered {done} of {len(texts)} held-out inputs"
        run.progress(StepName.EVALUATION, done=done, total=len(texts), message=message)


def _call(run: CompileRun, text: str) -> PlannedCall:
    shown = sha256_hex(text.encode())[:40]
    seed = seed_of(run, "beside", shown)
    return PlannedCall(
        key=f"{HELD_OUT_CALLS}{shown}", request=item_request(run.spec, text, n=1, temperature=0.0, seed=seed)
    )


def _read(spec: Spec, reply: str) -> str:
    """The answer as the student's is compared; "" where there is none."""
    if isinstance(spec.output, LabelOutput):
        return parse_label(reply, label_names(spec)) or ""
    answer = parse_answer_choice(spec, reply)
    return "" if answer is None else answer.text
