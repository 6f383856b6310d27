"""Verification: every valid candidate gets its score, and each slice its ranking signal: the reward if the spec names a
model that gives one, else the verifiers. A spec without a verifier that ranks has the default one
(`scoring/default_verifier`), so the teacher's log-prob ranks nothing unasked.

All rewards are asked for before the first slice is scored: what a reward model's number is worth is measured by those
of the whole compile.
"""

from collections import Counter
from typing import Any

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.answers.candidates import Signal
from backend.domain.answers.rewards import Calibration
from backend.domain.canonical import sha256_of
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import SlicingOut, VerificationOut
from backend.domain.spec.parsing import reward_of, rewarded_by
from workers.candidates.ranking import ranking_of, score_slice
from workers.candidates.rewards import ask_rewards, calibrate, raw_reward
from workers.scoring.verifier import has_ranking
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of
from workers.step.result import StepDone, finish_step


def run_verification(run: CompileRun) -> StepDone:
    embedder = embedder_of(run)
    with run.transaction():
        slices = list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))
    gold = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_train)
    if reward_of(run.spec) is not None:
        for slice_row in slices:
            ask_rewards(run, slice_row, StepName.VERIFICATION)
    with run.transaction():
        calibration = calibrate(run)
    ranking = ranking_of(run, embedder, gold, calibration)
    for done, slice_row in enumerate(slices, start=1):
        score_slice(run, slice_row, ranking)
        with run.transaction():
            run.progress(
                StepName.VERIFICATION,
                done=done,
                total=len(slices),
                message=f"{slice_row.name}: ranked by {slice_row.signal}",
            )
    with run.transaction() as fenced:
        done_step = _summary(run, slices, calibration)
        finish_step(run, fenced, StepName.VERIFICATION, done_step)
    return done_step


def _summary(run: CompileRun, slices: list[Slice], calibration: Calibration | None) -> StepDone:
    rows = list(
        Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
        .order_by("text_key")
        .only("text_key", "state", "score", "signal", "reasons", "reward")
    )
    valid = [row for row in rows if row.state == CandidateState.VALID]
    reasons = Counter(reason for row in rows for reason in row.reasons)
    scores = [[row.text_key, row.state, None if row.score is None else f"{row.score:.6f}"] for row in rows]
    output = VerificationOut(
        scores=sha256_of(scores),
        n_candidates=len(rows),
        n_valid=len(valid),
        rejected_for=dict(sorted(reasons.items())),
        signal={slice_row.name: slice_row.signal for slice_row in slices},
        signals=dict(sorted(Counter(row.signal for row in valid).items())),
        verifier="spec" if has_ranking(run.spec) else "default",
        reward=None if calibration is None else _reward_facts(run, valid, calibration),
    )
    return StepDone(inputs={"candidates": sha256_of([row.text_key for row in rows])}, output=output)


def _reward_facts(run: CompileRun, valid: list[Candidate], calibration: Calibration) -> dict[str, Any]:
    """Tell who gave rewards, to how many, and how they became scores; a reward that says little is warned of."""
    asked = reward_of(run.spec)
    raws = [raw for row in valid if (raw := raw_reward(row)) is not None]
    n_missing = len(valid) - len(raws)
    model = rewarded_by(run.spec).teacher.model
    if n_missing:
        n_ranked = sum(row.signal == Signal.REWARD for row in valid)
        run.warn(
            "reward_unread",
            f"{n_missing} of {len(valid)} candidates got no number from the reward model {model}; {n_ranked} are "
            "ranked by their reward, the others by the verifiers. Look at its answers, lower per_call, or name another "
            "model.",
            step=StepName.VERIFICATION.value,
        )
    if len(raws) > 1 and len(set(raws)) == 1:
        run.warn(
            "reward_flat",
            f"The reward model {model} gave all candidates the same number: it ranks nothing. Write a rubric that "
            "tells candidates apart, or name another model or api.",
            step=StepName.VERIFICATION.value,
        )
    return {
        "model": model,
        "api": "" if asked is None else asked.api,
        "n_rewarded": len(raws),
        "n_unread": n_missing,
        "calibration": calibration.to_json(),
    }
