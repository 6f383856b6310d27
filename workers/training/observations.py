"""The observations and rules that labelling leaves beside the training pairs: the samples behind each accepted answer,
which a recipe pack is observed from, and the rules that hold on the pairs. Held-out gold is in neither."""

from collections.abc import Sequence
from typing import Any

from backend.blobs import put_blob, put_jsonl
from backend.compiles.models import Candidate, TeacherCall
from backend.compiles.states import LABEL_CALLS, CallState
from backend.domain.canonical import canonical_json
from backend.domain.planning.trials import TrialKind, may_be_causal
from backend.domain.rules.induction import RuleOptions, induce_rules
from backend.domain.spec.defaults import train_kind
from backend.domain.spec.gold import drop_leaks
from backend.domain.spec.parsing import LabelOutput, Spec, TextOutput
from backend.domain.spec.task_prompt import answer_form
from workers.step.durable import CompileRun
from workers.teachers.prompts.answer import parse_answer_choice
from workers.training.votes import MAX_VOTE_CHARS

MAX_OBSERVED = 20_000  # accepted answers; a pack of 64 KiB is full long before

Pairs = list[tuple[str, str]]


def observe(run: CompileRun, rows: Sequence[Candidate], trained: Sequence[dict[str, Any]], *, extracts: bool) -> str:
    """The digest of the observations, where a causal model may be trained, else "": one row an accepted answer.
    `trained` are the pairs of the training set, gold among them: gold counts as an answer that was given once.
    `extracts`: an extraction reproduces them."""
    is_causal = may_be_causal(run.spec) and not (extracts and train_kind(run.spec) == TrialKind.SPANS)
    if not run.spec.recipes.enabled or not is_causal:
        return ""
    answers = _answers_of_calls(run)
    observed = [
        {"input": row.text, "output": _answer(row), "samples": _valid(run.spec, row, answers.get(row.text_key, []))}
        for row in rows[:MAX_OBSERVED]
    ]
    texts = {row.text for row in rows}
    gold = [(pair["input"], _output(pair)) for pair in trained if pair["input"] not in texts]
    observed += [
        {"input": text, "output": output, "samples": [output]} for text, output in gold[: MAX_OBSERVED - len(observed)]
    ]
    return put_jsonl(run.tenant_id, observed)


def rules_of(
    run: CompileRun, rows: Sequence[Candidate], trained: Sequence[dict[str, Any]], heldout: Sequence[str]
) -> tuple[str, dict[str, Any] | None]:
    """The digest of a rules.json, "" for none, and the facts of its induction; nothing where the spec wants none, where
    the task has none, or where none was found."""
    if not run.spec.recipes.rules or isinstance(run.spec.output, TextOutput):
        return "", None
    texts = {row.text for row in rows}
    pairs: Pairs = [(row.text, _answer(row)) for row in rows]
    pairs += [(pair["input"], _output(pair)) for pair in trained if pair["input"] not in texts]
    kept = [pairs[i] for i in drop_leaks([text for text, _ in pairs], heldout)]
    options = RuleOptions(precision=run.spec.recipes.min_rule_precision)
    induced = induce_rules(kept, answer_form(run.spec), options)
    facts = {**induced.facts, "n_rules": induced.rules.n}
    if not induced.rules.n:
        return "", facts
    return put_blob(run.tenant_id, canonical_json(induced.rules.to_json())), facts


def _answers_of_calls(run: CompileRun) -> dict[str, list[str]]:
    """The teacher's answers in this compile, by text_key."""
    answers: dict[str, list[str]] = {}
    with run.transaction():
        calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state=CallState.APPLIED)
        calls = calls.filter(key__startswith=LABEL_CALLS).order_by("started_at")
        for key, choices in calls.values_list("key", "choices"):
            answers.setdefault(key.split(":")[1], []).extend(choice["text"] for choice in choices)
    return answers


def _valid(spec: Spec, row: Candidate, answers: Sequence[str]) -> list[str]:
    """The samples that were valid: those that the votes have counted. Without calls of this compile (labels of an
    earlier one) the votes themselves speak, as far as they hold whole answers."""
    if isinstance(spec.output, LabelOutput):
        return [label for label, n in row.votes.items() for _ in range(n)] or [row.label]
    read = [parse_answer_choice(spec, one) for one in answers]
    counted = [one.text for one in read if one is not None and one.text[:MAX_VOTE_CHARS] in row.votes]
    whole = [text for text, n in row.votes.items() if len(text) < MAX_VOTE_CHARS for _ in range(n)]
    return counted or whole or [row.answer]


def _answer(row: Candidate) -> str:
    return str(row.label or row.answer)


def _output(pair: dict[str, Any]) -> str:
    return str(pair["label"] if "label" in pair else pair["output"])
