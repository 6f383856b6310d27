"""The line about how a json or text task is answered: by a span student, where its gold shows that values stand in the
inputs or are of a closed set, or that its texts have fixed forms; else by a causal base. What is decided in the end is
decided on the pairs that train."""

from collections.abc import Sequence

from backend.domain.answers.json_values import BadAnswer, parse_answer
from backend.domain.extraction.learning import is_extraction, learn_plan
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.extraction.plan_words import formless_words, refusal_message
from backend.domain.extraction.sentence_learning import learn_text_plan
from backend.domain.planning.preflight.lines import Check, PreflightLine, failed_line, passed_line, warning_line
from backend.domain.spec.defaults import may_extract
from backend.domain.spec.inputs import Example
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput, TextOutput

FEWEST = 10  # gold examples below which nothing is said
MOST = 500  # gold examples that are looked at
MANY_TEXTS = 40  # gold texts, from which on too few with a form refuse the spec: of fewer, each may be one of its form
MOST_HINTED, LONGEST_HINTED = 100, 500  # gold texts that are looked at for a hint alone, and their characters
LEAST_WITH_FORM = 0.5  # of them, below which the teacher's texts, of which a form needs two alike, will not do either


def gold_plan(spec: Spec, gold: Sequence[Example]) -> ExtractionPlan | None:
    """The plan that the gold shows; None where no span student is wanted, or gold is too little to show one. That of a
    text task is looked for wherever its kind of student is left open, for a hint."""
    if len(gold) < FEWEST:
        return None
    if isinstance(spec.output, TextOutput):
        return _text_plan(spec, [(one.input, str(one.output)) for one in gold[:MOST]])
    if not isinstance(spec.output, JsonOutput) or not may_extract(spec):
        return None
    pairs = []
    for example in gold[:MOST]:
        try:
            pairs.append((example.input, parse_answer(example.output)))
        except BadAnswer:
            continue
    return learn_plan(spec.output.answer_schema, pairs)


def _text_plan(spec: Spec, pairs: Sequence[tuple[str, str]]) -> ExtractionPlan | None:
    if may_extract(spec):
        return learn_text_plan(pairs)
    short = pairs[:MOST_HINTED]
    is_short = all(len(text) <= LONGEST_HINTED for _, text in short)
    return learn_text_plan(short) if spec.train.kind is None and len(short) >= MANY_TEXTS and is_short else None


def extraction_lines(spec: Spec, plan: ExtractionPlan | None) -> list[PreflightLine]:
    """The line of a plan that gold shows."""
    if plan is None:
        return []
    if isinstance(spec.output, TextOutput):
        return _text_lines(spec, plan)
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


def _text_lines(spec: Spec, plan: ExtractionPlan) -> list[PreflightLine]:
    formless = next((one for one in plan.refusals if not one.path), None)
    n_formless = formless.n_wrong if formless else 0
    n_forms = len(plan.sentences.forms) if plan.sentences else 0
    forms = f"{n_forms:,} fixed form{'s' * (n_forms != 1)}"
    share = f"{plan.n_pairs - n_formless:,} of the {plan.n_pairs:,} gold texts are of {forms}"
    if is_extraction(plan):
        sentence = f"A span student can answer: {share}."
        if spec.train.kind is None:
            sentence = (
                f"A causal base writes the texts. {share}: with train.kind: spans an encoder could answer with them, "
                "in milliseconds on a CPU."
            )
        return [passed_line(Check.STUDENT, sentence)]
    if spec.train.kind is None:
        return []
    lost = formless_words(formless, "gold texts") if formless else refusal_message(plan)
    advice = "Leave train.kind out for a causal base, or have gold and the teacher keep to a few forms."
    if plan.n_pairs >= MANY_TEXTS and n_formless > (1 - LEAST_WITH_FORM) * plan.n_pairs:
        return [failed_line(Check.STUDENT, lost, code="not_extractable", what_to_do=advice)]
    ends = "The compile ends before it trains, unless the teacher's texts have these forms too."
    return [warning_line(Check.STUDENT, f"{lost} {ends}", code="not_extractable", what_to_do=advice)]
