"""Rewards of a slice's candidates: asked of a judge or a reward model through the journal, and kept on the candidates.

Every valid candidate is asked about, in batches of `per_call` (a judge) or one by one (a reward model). One without a
number is asked about once more where a judge is asked, alone. What then has no number stays without: it is ranked by
the next signal, counted and reported. A batch's calls and what they said of the candidates are saved in one
transaction, and a call's name is made of its candidates, so a process that dies pays nothing twice.
"""

import hashlib
import math
import random
from collections.abc import Sequence
from typing import Any

from backend.compiles.models import Candidate, Compile, Slice
from backend.compiles.states import REWARD_CALLS, CandidateState
from backend.domain.answers.rewards import RATINGS, Calibration
from backend.domain.lifecycle import StepName
from backend.domain.spec.parsing import Spec, reward_of, rewarded_by
from backend.domain.spec.reward import RewardVerifier
from workers.candidates.slices import slice_spec
from workers.step.durable import CompileRun
from workers.step.teacher_calls import MadeCall, PlannedCall, call_batch
from workers.step.teacher_session import TeacherSession, reward_session, seed_of
from workers.teachers.judges.ratings import RatingBatch, groups_within, rating_batch
from workers.teachers.prompts.reward import reward_question, scored_request
from workers.teachers.protocol import RewardFailed, TeacherFailed

TURNS = 2  # a judge is asked about a candidate, and once more about one that it gave no number


def ask_rewards(run: CompileRun, slice_row: Slice, step: StepName) -> None:
    """Ask for the rewards that the slice's valid candidates lack; without a reward in the spec nothing happens. Raises
    RewardFailed. Safe to run again at any point."""
    asked = reward_of(run.spec)
    if asked is None or not _lacking(run, slice_row, turn=_turns(asked)):
        return
    try:
        with reward_session(run) as session:
            for turn in range(1, _turns(asked) + 1):
                _ask(run, slice_row, step, session, asked, turn)
    except TeacherFailed as failed:
        raise _as_reward_failure(run.spec, failed) from None


def raw_reward(row: Candidate) -> float | None:
    """The number that a candidate was given, on the scale of who gave it."""
    raw = (row.reward or {}).get("raw")
    return None if raw is None else float(raw)


def calibrate(run: CompileRun) -> Calibration | None:
    """Find how the numbers of this compile become scores, from those that its candidates have by now; None without a
    reward in the spec. In a transaction."""
    asked = reward_of(run.spec)
    if asked is None:
        return None
    if asked.is_chat:
        return RATINGS
    rows = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state=CandidateState.VALID)
    return Calibration.of([raw for row in rows.only("reward") if (raw := raw_reward(row)) is not None])


def _turns(asked: RewardVerifier) -> int:
    return TURNS if asked.is_chat else 1


def _lacking(run: CompileRun, slice_row: Slice, *, turn: int) -> list[Candidate]:
    """The candidates without a number that were asked about in fewer turns than this one."""
    with run.transaction():
        valid = Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID)
        rows = list(valid.defer("embedding").order_by("text_key"))
    return [row for row in rows if raw_reward(row) is None and (row.reward or {}).get("asked", 0) < turn]


def _ask(
    run: CompileRun, slice_row: Slice, step: StepName, session: TeacherSession, asked: RewardVerifier, turn: int
) -> None:
    rows = _lacking(run, slice_row, turn=turn)
    per_call = asked.per_call if asked.is_chat and turn == 1 else 1
    groups = [[rows[i] for i in places] for places in groups_within([row.text for row in rows], per_call)]
    width = rewarded_by(run.spec).teacher.concurrency
    for first in range(0, len(groups), width):
        part = groups[first : first + width]
        plans = [_plan(run, slice_row, asked, group, turn) for group in part]

        def save(compile: Compile, calls: list[MadeCall]) -> None:
            for group, (_, batch), call in zip(part, plans, calls, strict=True):  # noqa: B023 (called within the turn)
                _keep(group, batch, call.choices, turn)

        call_batch(run, step, session.teacher, session.price, [plan for plan, _ in plans], save)


def _plan(
    run: CompileRun, slice_row: Slice, asked: RewardVerifier, group: Sequence[Candidate], turn: int
) -> tuple[PlannedCall, RatingBatch | None]:
    """The call about a group, and for a judge what it is shown: the same for the same candidates, whoever asks."""
    digest = hashlib.sha256("\n".join(row.text_key for row in group).encode()).hexdigest()[:32]
    key = f"{REWARD_CALLS}{digest}:{turn}"
    slice_ = slice_spec(slice_row)
    if not asked.is_chat:
        return PlannedCall(key=key, request=scored_request(reward_question(run.spec, slice_), group[0].text)), None
    seed = seed_of(run, "reward", digest, turn)
    batch = rating_batch([row.text for row in group], random.Random(seed))
    request = batch.request(run.spec, slice_, seed=seed, thought_of=rewarded_by(run.spec))
    return PlannedCall(key=key, request=request), batch


def _keep(group: Sequence[Candidate], batch: RatingBatch | None, choices: list[dict[str, Any]], turn: int) -> None:
    ratings = {0: _number(choices[0])} if batch is None else batch.read(choices[0])
    for place, row in enumerate(group):
        raw = ratings.get(place)
        row.reward = {"asked": turn} if raw is None else {"asked": turn, "raw": raw}
    Candidate.objects.bulk_update(group, ["reward"])


def _number(choice: dict[str, Any]) -> float | None:
    """The number of a reward model, as its client wrote it."""
    if not choice["text"]:
        return None
    value = float(choice["text"])
    return value if math.isfinite(value) else None


def _as_reward_failure(spec: Spec, failed: TeacherFailed) -> RewardFailed:
    """The failure in words of the reward, with the place in the spec that it is asked by."""
    place = next(i for i, verifier in enumerate(spec.verifiers) if isinstance(verifier, RewardVerifier))
    what = failed.message.replace("The teacher's", "The reward model's").replace("The teacher ", "The reward model ", 1)
    what = what.replace("teacher.", "its ")  # the options that a message names
    advice = (
        f"It is asked as /verifiers/{place} says: correct its address, model or key there, or leave the reward out."
    )
    return RewardFailed(f"{what} {advice}", code=failed.code, usage=failed.usage, n_attempts=failed.n_attempts)
