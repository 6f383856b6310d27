"""The on-policy distillation (Agarwal et al. 2024) of a causal base: a student that was trained on the teacher's
answers answers labelled inputs itself, the teacher tells how likely each token of these answers is to it, and a second
training goes on from there. It learns to continue what it writes, which no answer of the teacher's shows it.

Two jobs of one trial, and the teacher's calls between them, which are journaled and billed as all its calls. An input
whose answer cannot be learnt from, and gold, keep the answer that they have.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from backend.blobs import get_jsonl, has_blob, put_jsonl
from backend.domain.errors import CustomerError
from backend.domain.jobs.causal_jobs import DistillCausalResult
from backend.domain.jobs.runner_results import BadResult
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import LabelingOut, SlicingOut
from backend.domain.planning.trial_records import TrialRecord
from backend.domain.planning.trials import Trial, TrialKind
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import RunnerJob
from workers.step.durable import CompileRun
from workers.step.runner_wait import Slot, result_or_wait
from workers.step.teacher_calls import PlannedCall, ask_batch, request_sha256
from workers.step.teacher_session import TeacherSession, teacher_session
from workers.teachers.prompts.answer import item_request
from workers.teachers.protocol import ScoreRequest
from workers.training.sample_pairs import Pair, with_soft_targets
from workers.training.trial_jobs import Trained, distill_causal_offer, distill_offer, read_trained

N_LIKELIEST = 20  # tokens at each place that the teacher is asked for
MAX_OUTPUT_CHARS = 100_000  # of an answer that the teacher is asked about; a runner's result is not trusted
Finished = tuple[RunnerJob, dict[str, Any]]


def is_on_policy(run: CompileRun, trial: Trial) -> bool:
    """Say whether a trial has a second training, on the student's own answers."""
    return trial.kind is TrialKind.CAUSAL and run.spec.train.causal.on_policy > 0


def train(run: CompileRun, step: StepName, trial: Trial, *, slot: Slot | None = None) -> Finished | None:
    """The trial's finished training and its result; None while a runner works. Raises as `result_or_wait`, BadResult,
    and what a call of the teacher raises."""
    if not is_on_policy(run, trial):
        return result_or_wait(run, step, lambda: distill_offer(run, trial), slot=slot)
    slot = slot or _first_slot(run, step, trial)
    first = result_or_wait(run, step, lambda: _pairs_offer(run, trial), slot=replace(slot, role="pairs"))
    if first is None:
        return None
    student = read_trained(run, trial, first[1])
    return result_or_wait(run, step, lambda: _own_offer(run, step, trial, student), slot=slot)


def first_job(run: CompileRun, step: StepName) -> RunnerJob | None:
    """The finished training on the pairs of the distillation step's trial; None where there is no other than its
    last."""
    with run.transaction():
        records = run.step(step).trials
    id = TrialRecord.from_json(records[0]).jobs.get("pairs") if records else None
    return None if id is None else RunnerJob.objects.get(id=id)


def _first_slot(run: CompileRun, step: StepName, trial: Trial) -> Slot:
    """The place of the first trial's jobs in its own step, which keeps a record of them then."""
    with run.transaction():
        row = run.step(step)
        if not row.trials:
            row.trials = [TrialRecord(trial=trial, jobs={}).to_json()]
            row.save(update_fields=["trials"])
    return Slot(trial=0, role="distill")


def _pairs_offer(run: CompileRun, trial: Trial) -> Offer:
    """The training on the pairs, after which the student answers a share of the inputs."""
    labeled = run.output(LabelingOut)
    pairs = get_jsonl(run.tenant_id, labeled.completions or labeled.dataset)
    gold = run.output(SlicingOut).gold_train
    known = {row["input"] for row in get_jsonl(run.tenant_id, gold)} if gold else set()
    causal = run.spec.train.causal
    texts = [text for text in dict.fromkeys(pair["input"] for pair in pairs) if text not in known]
    chosen = [text for text in texts if _rank(text, causal.seed) < causal.on_policy]
    sampled = put_jsonl(run.tenant_id, [{"input": text} for text in chosen]) if chosen else ""
    return distill_causal_offer(run, trial, labeled.completions or labeled.dataset, sampled=sampled)


def _rank(text: str, seed: int) -> float:
    """A share in [0, 1) that follows from the text: who answers does not depend on the other inputs."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=seed.to_bytes(8, "big"), digest_size=8)
    return int.from_bytes(digest.digest(), "big") / 2**64


def _own_offer(run: CompileRun, step: StepName, trial: Trial, student: Trained) -> Offer:
    """The training that goes on, on the student's own answers and the pairs of all other inputs. The teacher is asked
    first."""
    assert isinstance(student, DistillCausalResult)
    labeled = run.output(LabelingOut)
    pairs: list[Pair] = get_jsonl(run.tenant_id, labeled.completions or labeled.dataset)
    own = {
        row["input"]: row
        for row in _with_distributions(run, step, _samples(run, student, {pair["input"] for pair in pairs}))
    }
    rows = [*own.values(), *(pair for pair in pairs if pair["input"] not in own)]
    return distill_causal_offer(run, trial, put_jsonl(run.tenant_id, rows), start=student)


def _samples(run: CompileRun, student: DistillCausalResult, inputs: set[str]) -> list[Pair]:
    """The student's answers, one an input. Raises BadResult for a blob that holds anything else."""
    if not student.samples_sha256:
        return []
    if not has_blob(run.tenant_id, student.samples_sha256):
        raise BadResult("its samples were never handed over")
    try:
        rows = get_jsonl(run.tenant_id, student.samples_sha256)
    except ValueError as error:
        raise BadResult("its samples are no JSON lines") from error
    samples: dict[str, Pair] = {}
    for row in rows:
        if not isinstance(row, dict) or set(row) != {"input", "output"} or row["input"] not in inputs:
            raise BadResult("a sample is no answer to an input")
        output = row["output"]
        if not isinstance(output, str) or "\x00" in output or len(output) > MAX_OUTPUT_CHARS:
            raise BadResult("a sample's output is no text")
        if output.strip():
            samples[row["input"]] = {"input": row["input"], "output": output.strip(), "weight": 1.0}
    return list(samples.values())


def _with_distributions(run: CompileRun, step: StepName, samples: Sequence[Pair]) -> Iterator[Pair]:
    """The samples with the teacher's distributions of their tokens. Raises CustomerError(no_logprobs) where it tells
    none."""
    if not samples:
        return
    width, n_known = run.spec.teacher.concurrency, 0
    with teacher_session(run) as session:
        for at in range(0, len(samples), width):
            for row in _ask(run, step, session, samples[at : at + width]):
                if "soft_targets" in row:
                    n_known += 1
                    yield row | {"on_policy": True}
            with run.transaction():
                message = "the teacher reads the student's answers"
                run.progress(step, done=min(at + width, len(samples)), total=len(samples), message=message)
    if not n_known:
        raise CustomerError(
            "The teacher returned no log-probs for any of the student's answers; start its server with prompt_logprobs "
            "allowed (vLLM: --max-logprobs 20), or leave train.causal.on_policy out.",
            code="no_logprobs",
        )


def _ask(run: CompileRun, step: StepName, session: TeacherSession, samples: Sequence[Pair]) -> list[Pair]:
    plans = [_call(run, sample) for sample in samples]
    made = ask_batch(run, step, session.teacher, session.price, plans)
    return [with_soft_targets(sample, call.choices) for sample, call in zip(samples, made, strict=True)]


def _call(run: CompileRun, sample: Pair) -> PlannedCall:
    """The question how likely the student's answer is after the messages that ask for one."""
    asked = item_request(run.spec, sample["input"], n=1, temperature=1.0, seed=None)
    request = ScoreRequest(messages=asked.messages, text=sample["output"], top_logprobs=N_LIKELIEST)
    return PlannedCall(key=f"on-policy:{request_sha256(request)[:40]}", request=request)
