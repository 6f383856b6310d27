"""The extraction plan of a json task's training pairs, and what becomes of a task that is none."""

from collections.abc import Sequence
from typing import Any

from backend.blobs import get_json, put_json
from backend.domain.answers.json_values import parse_answer
from backend.domain.errors import CustomerError
from backend.domain.extraction.learning import is_extraction, learn_plan
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.extraction.plan_words import refusal_message, shared_words
from backend.domain.planning.step_outputs import LabelingOut
from backend.domain.spec.defaults import may_extract
from backend.domain.spec.outputs import JsonOutput
from workers.step.durable import CompileRun

SHOWN_REFUSALS = 20


def plan_of(run: CompileRun, rows: Sequence[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
    """The digest of the plan that the pairs are answered by, and what the receipt says of it; "" and None where no span
    student is wanted, "" where no extraction reproduces the pairs. Raises CustomerError(not_extractable) where the spec
    asks for a span student all the same."""
    output = run.spec.output
    if not isinstance(output, JsonOutput) or not may_extract(run.spec):
        return "", None
    plan = learn_plan(output.answer_schema, [(row["input"], parse_answer(row["output"])) for row in rows])
    is_one = is_extraction(plan)
    if not is_one and run.spec.train.kind == "spans":
        raise CustomerError(refusal_message(plan), code="not_extractable")
    return (put_json(run.tenant_id, plan.to_json()) if is_one else ""), facts_of(plan, is_extraction=is_one)


def facts_of(plan: ExtractionPlan, *, is_extraction: bool) -> dict[str, Any]:
    """The plan as the receipt and the API tell it: by leaf, how its values come about."""
    return {
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
