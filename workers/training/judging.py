"""A student's held-out texts beside gold, judged by the teacher: each pair is shown twice, the second time with the
places swapped, so that a liking for a place cancels out.

A call is named by what it shows: a resumed compile, and a further trial that answers the same, ask nothing again. What
is settled without a judge is not asked: an answer that fails a check has lost, one that is gold's own text ties.
"""

from collections.abc import Sequence

from backend.domain.canonical import sha256_hex
from backend.domain.evaluation.generative import Verdict, verdict_of
from backend.domain.lifecycle import StepName
from workers.step.durable import CompileRun
from workers.step.teacher_calls import PlannedCall, ask_batch
from workers.step.teacher_session import seed_of, teacher_session
from workers.teachers.prompts.pairwise import pairwise_request, parse_preference

Row = dict[str, str]


def judge_texts(
    run: CompileRun, heldout: Sequence[Row], answers: Sequence[str], failed: Sequence[Sequence[str]]
) -> list[str]:
    """One verdict a row, on the student: win, tie or loss."""
    verdicts: list[str | None] = [
        Verdict.LOSS if why else Verdict.TIE if answer == row["output"] else None
        for row, answer, why in zip(heldout, answers, failed, strict=True)
    ]
    todo = [i for i, verdict in enumerate(verdicts) if verdict is None]
    width, n_filtered = max(1, run.spec.teacher.concurrency // 2), 0
    with teacher_session(run) as session:
        for first in range(0, len(todo), width):
            part = todo[first : first + width]
            plans = [plan for i in part for plan in _both_ways(run, heldout[i], answers[i])]
            made = ask_batch(run, StepName.EVALUATION, session.teacher, session.price, plans)
            preferences = [parse_preference(call.choices[0]["text"]) for call in made]
            refused = [call.choices[0]["finish_reason"] == "content_filter" for call in made]
            n_filtered += sum(map(any, zip(refused[::2], refused[1::2], strict=True)))
            for nth, i in enumerate(part):
                verdicts[i] = verdict_of(preferences[2 * nth], preferences[2 * nth + 1])
            with run.transaction():
                done = first + len(part)
                run.progress(StepName.EVALUATION, done=done, total=len(todo), message=f"{done} answers judged")
    if n_filtered:
        _warn(run, n_filtered)
    return [str(verdict) for verdict in verdicts]


def _warn(run: CompileRun, n_filtered: int) -> None:
    """Warn once, although whoever takes over, and a further trial, counts again."""
    with run.transaction():
        run.warn_once(
            "judge_filtered",
            f"The judge's own filter refused to compare {n_filtered} held-out answers with gold. They count as lost, "
            "which may be less than the model deserves.",
            step=StepName.EVALUATION.value,
        )


def _both_ways(run: CompileRun, row: Row, answer: str) -> list[PlannedCall]:
    """The student first, then gold first."""
    shown = sha256_hex("\0".join((row["input"], row["output"], answer)).encode())[:40]
    pairs = {"first": (answer, row["output"]), "second": (row["output"], answer)}
    return [
        PlannedCall(
            key=f"judging:{shown}:{place}",
            request=pairwise_request(run.spec, row["input"], a, b, seed=seed_of(run, "judging", shown, place)),
        )
        for place, (a, b) in pairs.items()
    ]
