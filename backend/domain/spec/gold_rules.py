"""The rules for gold that is to carry the evaluation which a spec asks for: right answers of the right form, and enough
of them. Whether gold passes the spec's own checks is not judged here: some of them run in a sandbox.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from backend.domain.answers.json_schemas import check_schema, validator
from backend.domain.answers.json_validation import BudgetExceeded, ValidationBudget
from backend.domain.answers.json_values import BadAnswer, parse_answer
from backend.domain.errors import Problem
from backend.domain.pointers import suggestion
from backend.domain.spec.gold import n_heldout_at_least
from backend.domain.spec.inputs import Example
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput, LabelOutput

MOST = 50  # problems that are told at once
MAX_STEPS = 8_000_000  # of a tenth of a microsecond at most
STEPS_A_CHAR = 10  # more for each character of the answers: to look at every value once is always paid for


def gold_problems(spec: Spec, examples: Sequence[Example]) -> list[Problem]:
    """Broken rules about gold; pointers are those of a spec with all of it inline."""
    problems = _answers(spec, examples)
    if len(examples) < 2:
        count = "is 1 example" if examples else "are no examples"
        each = " for each label" if isinstance(spec.output, LabelOutput) else ""
        message = f"there {count}; give at least two{each}, so that one can be held out"
        return [*problems, Problem(pointer="/examples", message=message, code="too_few_examples")]
    if isinstance(spec.output, LabelOutput):
        problems += _labels_without_gold(spec.output, examples)
    heldout = n_heldout_at_least(examples, holdout=spec.examples.holdout)
    if not problems and heldout < spec.gate.min_heldout:
        message = (
            f"holding out {spec.examples.holdout:g} of {len(examples)} examples gives {heldout} for the evaluation "
            f"and the gate needs {spec.gate.min_heldout}; add some, raise examples.holdout or lower gate.min_heldout"
        )
        problems.append(Problem(pointer="/examples", message=message, code="too_few_heldout"))
    return problems


def _answers(spec: Spec, examples: Sequence[Example]) -> list[Problem]:
    return list(islice(_wrong_answers(spec, examples), MOST))


def _wrong(i: int, message: str, code: str) -> Problem:
    return Problem(pointer=f"/examples/inline/{i}/output", message=message, code=code)


def _wrong_answers(spec: Spec, examples: Sequence[Example]) -> Iterator[Problem]:
    output = spec.output
    if isinstance(output, JsonOutput):
        yield from _wrong_json(output, examples)
    elif isinstance(output, LabelOutput):
        known = {label.name: None for label in output.labels}
        for i, example in enumerate(examples):
            if example.output not in known:
                words = suggestion(example.output, list(known))
                yield _wrong(i, f'there is no label "{example.output[:80]}"; {words}', "unknown_label")
    else:
        for i, example in enumerate(examples):
            if not example.output.strip() or len(example.output) > output.max_chars:
                words = f"has {len(example.output):,} characters; output.max_chars allows 1 to {output.max_chars:,}"
                yield _wrong(i, words, "bad_answer")


def _wrong_json(output: JsonOutput, examples: Sequence[Example]) -> Iterator[Problem]:
    if check_schema(output.answer_schema):
        return  # that is a problem of its own, and nothing is judged by what was not vetted
    n_chars = sum(len(example.output) for example in examples)
    errors_of = validator(output.answer_schema, budget=ValidationBudget(MAX_STEPS + STEPS_A_CHAR * n_chars))
    for i, example in enumerate(examples):
        try:
            errors = errors_of(parse_answer(example.output))
        except BadAnswer as fault:
            yield _wrong(i, f"is no answer: {fault}", "bad_answer")
        except BudgetExceeded:
            words = (
                "the gold up to here takes all the time there is to compare it with output.schema; give the schema "
                "fewer branches in anyOf and oneOf, fewer required names or shorter patterns, or give fewer examples"
            )
            yield _wrong(i, words, "too_slow")
            return
        else:
            if errors:
                yield _wrong(i, f"does not fit output.schema: {errors[0]}", "schema_mismatch")


def _labels_without_gold(output: LabelOutput, examples: Sequence[Example]) -> list[Problem]:
    counts = Counter(example.output for example in examples)
    without = [label.name for label in output.labels if not counts[label.name]]
    if not without:
        return []
    message = f"no gold example for {_list(without)}; add one for each label or remove the label"
    return [Problem(pointer="/examples", message=message, code="no_gold_for_label")]


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")
