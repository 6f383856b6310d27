"""The extraction plan of a json or text task's training pairs, and what becomes of a task that is none."""

from collections.abc import Sequence
from typing import Any

from backend.blobs import get_json, get_jsonl, put_json, put_jsonl
from backend.domain.answers.json_values import answer_text, parse_answer
from backend.domain.errors import CustomerError
from backend.domain.extraction.learning import is_extraction, learn_plan
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.extraction.plan_words import refusal_message, shared_words
from backend.domain.extraction.sentence_learning import learn_text_plan
from backend.domain.extraction.sentences import Sentences
from backend.domain.planning.step_outputs import LabelingOut
from backend.domain.spec.defaults import may_extract
from backend.domain.spec.outputs import JsonOutput, LabelOutput, TextOutput
from workers.step.durable import CompileRun

SHOWN_REFUSALS = 20
SHOWN_FORMS = 50


def plan_of(run: CompileRun, rows: Sequence[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
    """The digest of the plan that the pairs are answered by, and what the receipt says of it; "" and None where no span
    student is wanted, "" where no extraction reproduces the pairs. Raises CustomerError(not_extractable) where the spec
    asks for a span student all the same."""
    output = run.spec.output
    if isinstance(output, LabelOutput) or not may_extract(run.spec):
        return "", None
    plan = _learn(output, rows)
    is_one = is_extraction(plan)
    if not is_one and run.spec.train.kind == "spans":
        raise CustomerError(refusal_message(plan), code="not_extractable")
    return (put_json(run.tenant_id, plan.to_json()) if is_one else ""), facts_of(plan, is_extraction=is_one)


def _learn(output: JsonOutput | TextOutput, rows: Sequence[dict[str, Any]]) -> ExtractionPlan:
    if isinstance(output, TextOutput):
        return learn_text_plan([(row["input"], row["output"]) for row in rows])
    return learn_plan(output.answer_schema, [(row["input"], parse_answer(row["output"])) for row in rows])


def facts_of(plan: ExtractionPlan, *, is_extraction: bool) -> dict[str, Any]:
    """The plan as the receipt and the API tell it: by leaf, how its values come about."""
    forms = {} if plan.sentences is None else {"forms": [form.text for form in plan.sentences.forms[:SHOWN_FORMS]]}
    return forms | {
        "is_extraction": is_extraction,
        "share_ppm": plan.share_ppm,
        "n_values": plan.n_values,
        "n_right": plan.n_right,
        "leaves": [
            {
                "path": rule.path,
                "way": rule.way.value,
                "shared": shared_words(rule),
                "converters": [one.converter.value for one in rule.conversions],
                "n": rule.n,
                "n_right": rule.n_right,
            }
            for rule in plan.rules
        ],
        "refusals": [one.to_json() for one in plan.refusals[:SHOWN_REFUSALS]],
    }


def saved_plan(run: CompileRun) -> dict[str, Any]:
    """The plan that labelling made."""
    value: dict[str, Any] = get_json(run.tenant_id, run.output(LabelingOut).extraction)
    return value


def schema_of(run: CompileRun) -> dict[str, Any]:
    """The schema of what a span student reads: a json task's own, or that of a text task's sentences."""
    output = run.spec.output
    if isinstance(output, JsonOutput):
        return dict(output.answer_schema)
    return _sentences(run).schema()


def pairs_of(run: CompileRun, dataset: str) -> str:
    """The digest of the pairs as a span student trains on them: of texts what their sentences say, without those that
    have no form."""
    if isinstance(run.spec.output, JsonOutput):
        return dataset
    sentences = _sentences(run)
    schema = sentences.schema()
    read = [(row, sentences.read(row["output"], row["input"])) for row in get_jsonl(run.tenant_id, dataset)]
    rows = [row | {"output": answer_text(answer, schema)} for row, answer in read if answer is not None]
    return put_jsonl(run.tenant_id, rows)


def _sentences(run: CompileRun) -> Sentences:
    return Sentences.from_json(saved_plan(run)["sentences"])
