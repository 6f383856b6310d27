"""The work of a trial's jobs, as a bill counts it: what the runner counted, but never more than the data that it was
given can amount to."""

from collections.abc import Iterable
from typing import Any

from backend.blobs import get_json, get_jsonl
from backend.domain.jobs.recipe_jobs import PackRecipesResult
from backend.domain.money.runner_work import (
    WorkSku,
    causal_answers,
    causal_training,
    drafted_within,
    drafting,
    encoder_reading,
    encoder_training,
    together,
)
from backend.domain.planning.step_outputs import LabelingOut, SlicingOut
from backend.domain.planning.trial_estimates import n_bytes
from backend.domain.planning.trials import Trial, TrialKind
from backend.domain.spec.defaults import answer_max_tokens
from backend.domain.spec.task_prompt import system_prompt
from backend.runner_jobs.models import RunnerJob
from workers.step.durable import CompileRun
from workers.step.runner_wait import JobWork
from workers.training.trial_jobs import gold_alone, random_labels

TEXT_ROOM = 32  # tokens that an encoder reads beside a text: its prefix and its special tokens
CHAT_ROOM = 256  # and a causal base beside a prompt: its chat template


def training_work(run: CompileRun, trial: Trial, job: RunnerJob, value: dict[str, Any]) -> JobWork:
    """The work of a trial's training, of a result that need not be one; of a causal base that of its student's own
    answers too, where the job asks for some."""
    train, labeled, n_tokens = run.spec.train, run.output(LabelingOut), _count(value, "n_tokens")
    if trial.kind is TrialKind.ENCODER:
        texts = [row["input"] for row in get_jsonl(run.tenant_id, labeled.dataset)]
        most = train.passes(len(texts)) * _most(texts, room=TEXT_ROOM, limit=train.max_tokens)
        done = None if n_tokens is None else encoder_training(n_tokens)
        return JobWork(done=done, most=encoder_training(most))
    if trial.kind is TrialKind.SPANS:
        texts = [row["input"] for row in get_jsonl(run.tenant_id, labeled.dataset)]
        most = 2 * train.spans.passes(len(texts)) * _most(texts, room=TEXT_ROOM, windows=train.spans.max_tokens)
        done = None if n_tokens is None else encoder_training(n_tokens)
        return JobWork(done=done, most=encoder_training(most))
    return _causal_training_work(run, job, value)


def _causal_training_work(run: CompileRun, job: RunnerJob, value: dict[str, Any]) -> JobWork:
    causal, n_tokens = run.spec.train.causal, _count(value, "n_tokens")
    asked = get_json(run.tenant_id, job.payload_sha256)
    rows = get_jsonl(run.tenant_id, asked["dataset_sha256"])
    room = CHAT_ROOM + n_bytes(system_prompt(run.spec))
    texts = (row["input"] + row["output"] for row in rows)
    most = causal_training(causal.base, causal.epochs * _most(texts, room=room, limit=causal.max_tokens))
    done = None if n_tokens is None else causal_training(causal.base, n_tokens)
    if not asked.get("sampled_sha256"):
        return JobWork(done=done, most=most)
    inputs = [row["input"] for row in get_jsonl(run.tenant_id, asked["sampled_sha256"])]
    n_read, n_written = _count(value, "n_read") or 0, _count(value, "n_written") or 0
    answers = causal_answers(causal.base, n_read=n_read, n_written=n_written)
    n_most = len(inputs) * answer_max_tokens(run.spec)
    most_answers = causal_answers(causal.base, n_read=_most(inputs, room=room), n_written=n_most)
    return JobWork(done=None if done is None else together(done, answers), most=together(most, most_answers))


def evaluation_work(run: CompileRun, trial: Trial, value: dict[str, Any]) -> JobWork:
    """The work of a trial's evaluation, likewise."""
    heldout = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_heldout)
    texts = [row["input"] for row in heldout]
    if trial.kind is TrialKind.ENCODER:
        gold = gold_alone(run, heldout)
        texts += [row["input"] for row in get_jsonl(run.tenant_id, gold)] if gold else []
        texts += [row["input"] for row in random_labels(run, heldout)]
        most = encoder_reading(_most(texts, room=TEXT_ROOM, limit=run.spec.train.max_tokens))
        n_tokens = _count(value, "n_tokens")
        return JobWork(done=None if n_tokens is None else encoder_reading(n_tokens), most=most)
    if trial.kind is TrialKind.SPANS:
        most = encoder_reading(2 * _most(texts, room=TEXT_ROOM, windows=run.spec.train.spans.max_tokens))
        n_tokens = _count(value, "n_tokens")
        return JobWork(done=None if n_tokens is None else encoder_reading(n_tokens), most=most)
    base = run.spec.train.causal.base
    n_read, n_written = _count(value, "n_read"), _count(value, "n_written")
    # both by the adapter and by the bare base
    prompts = 2 * _most(texts, room=CHAT_ROOM + n_bytes(system_prompt(run.spec)))
    answers = 2 * len(texts) * answer_max_tokens(run.spec)
    done = None if n_read is None else causal_answers(base, n_read=n_read, n_written=n_written or 0)
    return JobWork(done=done, most=causal_answers(base, n_read=prompts, n_written=answers))


def drafting_work(run: CompileRun, result: PackRecipesResult) -> JobWork:
    """The work of measuring what drafts: the tokens of all arms, no more than the spec's seconds come to."""
    n_tokens = sum(arm["n_tokens"] for arm in result.measured)
    base = run.spec.train.causal.base
    most = {**drafting(base, 0), WorkSku.CAUSAL_DRAFT: drafted_within(run.spec.recipes.budget_s, run.book)}
    return JobWork(done=drafting(base, n_tokens), most=most)


def _most(texts: Iterable[str], *, room: int, limit: int | None = None, windows: int | None = None) -> int:
    """Every byte a token, and `room` beside each text; of a text no more than `limit` is read, or all of it in
    `windows` of so many tokens, of which each repeats less than half of the one before."""
    sizes = [n_bytes(text) for text in texts]
    if windows is not None:
        return sum(2 * size + room * (1 + 4 * size // windows) for size in sizes)
    return sum((size if limit is None else min(size, limit)) + room for size in sizes)


def _count(value: dict[str, Any], name: str) -> int | None:
    """A count of work; None where the runner counted none."""
    count = value.get(name)
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None
