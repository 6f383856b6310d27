"""The line about how a json task is answered: by a span student, where its gold shows that values stand in the inputs
or are of a closed set, else by a causal base. What is decided in the end is decided on the pairs that train."""

from collections.abc import Sequence

from backend.domain.answers.json_values import BadAnswer, parse_answer
from backend.domain.extraction.learning import is_extraction, learn_plan
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.extraction.plan_words import refusal_message
from backend.domain.planning.preflight.lines import Check, PreflightLine, failed_line, passed_line, warning_line
from backend.domain.spec.defaults import may_extract
from backend.domain.spec.inputs import Example
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput

FEWEST = 10  # gold examples below which nothing is said
MOST = 500  # gold examples that are looked at


def gold_plan(spec: Spec, gold: Sequence[Example]) -> ExtractionPlan | None:
    """The plan that the gold shows; None where no span student is wanted, or gold is too little to show one."""
    if not isinstance(spec.output, JsonOutput) or not may_extract(spec) or len(gold) < FEWEST:
        return None
    pairs = []
    for example in gold[:MOST]:
        try:
            pairs.append((example.input, parse_answer(example.output)))
        except BadAnswer:
            continue
    return learn_plan(spec.output.answer_schema, pairs)


def extraction_lines(spec: Spec, plan: ExtractionPlan | None) -> list[PreflightLine]:
    """The line of a plan that gold shows."""
    if plan is None:
        return []
    if is_extraction(plan):
        share = f"{plan.n_right:,} of the {plan.n_values:,} values of gold"
        return [passed_line(Check.STUDENT, f"A span student can answer: {share} are copied or of a closed set.")]
    if spec.train.kind == "spans":
        return [
            failed_line(
                Check.STUDENT,
                refusal_message(plan),
                code="not_extractable",
                what_to_do="Leave train.kind out, or have the task copy these values as they stand in the input.",
            )
        ]
    return [
        warning_line(
            Check.STUDENT,
            f"{refusal_message(plan)} A causal base is trained in its place unless the pairs show otherwise.",
            code="not_extractable",
            what_to_do="Nothing, if that is meant; name the base as train.causal.base. Else have the task copy values.",
        )
    ]
