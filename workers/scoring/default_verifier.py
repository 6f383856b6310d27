"""The verifier of a spec that names none that ranks: the form of a candidate, beside the form of the task's own inputs.
It asks nobody and costs nothing. What it cannot tell apart is kept by spread alone.

It does not score how near a candidate is to its slice, nor how likely its teacher found it. Both prefer the typical,
and a student learns most from the rare: measured in `tests/bench/default_verifier.py`; docs/rewards.md has the figures.
"""

from collections.abc import Callable, Sequence

from backend.domain.answers.input_form import InputForm
from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import BadAnswer, parse_answer
from backend.domain.spec.parsing import JsonOutput, LabelOutput, Spec, label_names

AROUND_A_LABEL = "\"'`*. \t\r\n"


def input_form(spec: Spec, inputs: Sequence[str]) -> InputForm:
    """The form of the task's inputs: training gold and exemplars. Held-out gold is not to be among them."""
    return InputForm.of(inputs, answer_test(spec))


def answer_test(spec: Spec) -> Callable[[str], bool]:
    """The test whether a text is an answer to the task, where one could be taken for an input: of a label task a
    label's name, of a json task an object or list that fits the schema; of a text task none can."""
    if isinstance(spec.output, LabelOutput):
        names = frozenset(name.casefold() for name in label_names(spec))
        return lambda text: text.strip(AROUND_A_LABEL).casefold() in names
    if isinstance(spec.output, JsonOutput):
        problems = validator(spec.output.answer_schema)
        return lambda text: _fits(text, problems)
    return lambda text: False


def _fits(text: str, problems: Callable[[object], object]) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        value = parse_answer(text)
    except BadAnswer:
        return False
    return not problems(value)
