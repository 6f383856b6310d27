"""The work of a trial's jobs, as a bill counts it: what the runner counted, but never more than the data that it was
given can amount to."""

from collections.abc import Iterable
from typing import Any

from backend.blobs import get_jsonl
from backend.domain.jobs.recipe_jobs import PackRecipesResult
from backend.domain.money.runner_work import (
    WorkSku,
    causal_answers,
    causal_training,
    drafted_within,
    drafting,
    encoder_reading,
    encoder_training,
)
from backend.domain.planning.step_outputs import LabelingOut, SlicingOut
from backend.domain.planning.trial_estimates import n_bytes
from backend.domain.planning.trials import Trial, TrialKind
from backend.domain.spec.defaults import answer_max_tokens
from backend.domain.spec.task_prompt import system_prompt
from workers.step.durable import CompileRun
from workers.step.runner_wait import JobWork
from workers.training.trial_jobs import gold_alone, random_labels

TEXT_ROOM = 32  # tokens that an encoder reads beside a text: its prefix and its special tokens
CHAT_ROOM = 256  # and a causal base beside a prompt: its chat template


def training_work(run: CompileRun, trial: Trial, value: dict[str, Any]) -> JobWork:
    """The work of a trial's training, of a result that need not be one."""
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
    rows = get_jsonl(run.tenant_id, labeled.completions or labeled.dataset)
    room, limit = CHAT_ROOM + n_bytes(system_prompt(run.spec)), train.causal.max_tokens
    most = train.causal.epochs * _most((row["input"] + row["output"] for row in rows), room=room, limit=limit)
    base = train.causal.base
    done = None if n_tokens is None else causal_training(base, n_tokens)
    return JobWork(done=done, most=causal_training(base, most))


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
