"""Rules about answers: labels that differ, a schema that can be decoded to, checks that can be run, and gold that can
carry the evaluation which a spec asks for. Whether gold passes the spec's own checks is not judged here: some of them
run in a sandbox.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from backend.domain.answers.json_schemas import check_schema, normal_schema, validator
from backend.domain.answers.json_validation import BudgetExceeded, ValidationBudget
from backend.domain.answers.json_values import BadAnswer, parse_answer
from backend.domain.errors import Problem
from backend.domain.patterns.matching import UnsafePattern, compile_pattern
from backend.domain.pointers import join, suggestion
from backend.domain.spec.gold import HELDOUT, TRAIN, more_heldout, n_heldout_at_least
from backend.domain.spec.inputs import Example
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import (
    CopiedCheck,
    JsonOutput,
    LabelOutput,
    LengthCheck,
    OutputCheck,
    PythonCheck,
    RegexCheck,
    TextOutput,
    check_name,
)

MOST = 50  # problems in one answer
MAX_STEPS = 8_000_000  # of a tenth of a microsecond at most
STEPS_A_CHAR = 10  # more for each character of the answers: to look at every value once is always paid for


def output_problems(spec: Spec) -> Iterator[Problem]:
    if isinstance(spec.output, LabelOutput):
        return
    if isinstance(spec.output, JsonOutput):
        faults = check_schema(spec.output.answer_schema, at="/output/schema")
        yield from faults
        schema = None if faults else normal_schema(spec.output.answer_schema)
        yield from _checks(spec.output.checks, is_json=True, schema=schema)
    else:
        yield from _text(spec.output)
        yield from _checks(spec.output.checks, is_json=False, schema=None)
    if spec.output.max_tokens >= spec.train.causal.max_tokens:
        message = (
            f"output.max_tokens {spec.output.max_tokens} leaves no room for a prompt in examples of "
            f"{spec.train.causal.max_tokens} tokens; lower it or raise train.causal.max_tokens"
        )
        yield Problem(pointer="/output/max_tokens", message=message, code="out_of_range")


def _text(output: TextOutput) -> Iterator[Problem]:
    if output.accuracy == "checks" and not output.checks:
        message = "accuracy is the share of answers that pass the checks, and there are none; add one, or take judge"
        yield Problem(pointer="/output/accuracy", message=message, code="no_checks")


def _checks(checks: Sequence[OutputCheck], *, is_json: bool, schema: Mapping[str, Any] | None) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for i, check in enumerate(checks):
        at = f"/output/checks/{i}"
        j = first.setdefault(check_name(check).casefold(), i)
        if j != i:
            message = f'two checks are called "{check_name(check)}" (also /output/checks/{j}); give one a name'
            yield Problem(pointer=f"{at}/name", message=message, code="duplicate_check")
        yield from _check(check, at)
        if check.field is not None and not is_json:
            message = "a text has no fields; leave field out"
            yield Problem(pointer=f"{at}/field", message=message, code="not_used")
        elif check.field is not None and schema is not None:
            yield from _field(check.field, schema, f"{at}/field")
        elif isinstance(check, CopiedCheck) and is_json and check.field is None:
            message = "name the field that is to be copied from the input; a whole JSON answer never is"
            yield Problem(pointer=f"{at}/field", message=message, code="missing")


def _check(check: OutputCheck, at: str) -> Iterator[Problem]:
    if isinstance(check, RegexCheck):
        try:
            compile_pattern(check.pattern)
        except UnsafePattern as fault:
            yield Problem(pointer=f"{at}/pattern", message=str(fault), code="bad_pattern")
    elif isinstance(check, LengthCheck) and check.min_chars > check.max_chars:
        message = f"min_chars {check.min_chars} is more than max_chars {check.max_chars}; no answer can pass"
        yield Problem(pointer=f"{at}/min_chars", message=message, code="out_of_range")
    elif isinstance(check, PythonCheck) and (words := _python_fault(check.source)) is not None:
        yield Problem(pointer=f"{at}/source", message=words, code="bad_source")


def _python_fault(source: str) -> str | None:
    """Return whether the source can be read and defines `check(input, output)`. It is parsed, never run, here."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return f"is not Python: line {error.lineno or 1}: {str(error.msg)[:200]}"
    except (ValueError, RecursionError, MemoryError):
        return "is not Python that can be read: it is nested too deep or holds what Python has no name for"
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if not functions:
        return "defines no function check; write def check(input, output): at the top level"
    arguments = functions[-1].args
    names = [*arguments.posonlyargs, *arguments.args]
    n_needed = len(names) - len(arguments.defaults)
    is_callable = n_needed <= 2 <= len(names) or (n_needed <= 2 and arguments.vararg is not None)
    if not is_callable or any(default is None for default in arguments.kw_defaults):
        return "its function check must take two arguments: def check(input, output):"
    return None


def _field(pointer: str, schema: Mapping[str, Any], at: str) -> Iterator[Problem]:
    """Each part of the pointer must be able to exist: a property, `*` for the elements of a list, or any name where
    the schema leaves names open."""
    parts: list[Mapping[str, Any]] = [schema]
    for token in pointer.split("/")[1:]:
        inside = [branch for part in _branches(parts) for branch in _step(part, token)]
        if not inside:
            known = sorted({name for part in _branches(parts) for name in _names(part)})
            message = (
                f'an answer has no "{token[:60]}" there; {suggestion(token, known) if known else "nothing is below"}'
            )
            yield Problem(pointer=at, message=message, code="unknown_field")
            return
        parts = inside


def _branches(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    flat: list[Mapping[str, Any]] = []
    for part in parts:
        inner = part.get("anyOf") or part.get("oneOf")
        flat += _branches(inner) if inner else [part]
    return flat


def _step(part: Mapping[str, Any], token: str) -> list[Mapping[str, Any]]:
    """The schemas that one token further stand for; an empty one takes anything below it."""
    name = token.replace("~1", "/").replace("~0", "~")
    kinds = part.get("type", "")
    fields, rest = part.get("properties", {}), part.get("additionalProperties", "object" in kinds)
    if name in fields:
        branches = [fields[name]]
    elif token == "*":
        branches = [*part.get("prefixItems", []), part.get("items", "array" in kinds), *fields.values(), rest]
    else:
        branches = [rest]
    return [item if isinstance(item, Mapping) else {} for item in branches if item is not False]


def _names(part: Mapping[str, Any]) -> list[str]:
    lists = ["*"] if "items" in part or "prefixItems" in part else []
    return [join("", name)[1:] for name in part.get("properties", {})] + lists


def gold_problems(spec: Spec, examples: Sequence[Example]) -> list[Problem]:
    """Broken rules about gold: `examples` are those of the spec, then the rows of its upload."""
    problems = list(islice(_wrong_answers(spec, examples), MOST))
    if len(examples) < 2:
        count = "is 1 example" if examples else "are no examples"
        each = " for each label" if isinstance(spec.output, LabelOutput) else ""
        message = f"there {count}; give at least two{each}, so that one can be held out"
        return [*problems, Problem(pointer="/examples", message=message, code="too_few_examples")]
    if isinstance(spec.output, LabelOutput):
        problems += _labels_without_gold(spec.output, examples)
    heldout = n_heldout_at_least(examples, holdout=spec.examples.holdout)
    if not problems and heldout < spec.gate.min_heldout:
        message = _too_few_heldout(spec, examples, heldout)
        problems.append(Problem(pointer="/examples", message=message, code="too_few_heldout"))
    return problems


def _too_few_heldout(spec: Spec, examples: Sequence[Example], n_heldout: int) -> str:
    n_named, n_trained = (sum(example.split == side for example in examples) for side in (HELDOUT, TRAIN))
    if n_named:
        text = f"{n_named} of {len(examples)} examples say that they are held out, {n_heldout} of them different ones,"
    else:
        free = " that do not say train" if n_trained else ""
        text = (
            f"holding out {spec.examples.holdout:g} of {len(examples) - n_trained} examples{free} gives {n_heldout} "
            "for the evaluation"
        )
    return f"{text} and the gate needs {spec.gate.min_heldout}; {more_heldout(examples)}"


def _wrong(spec: Spec, i: int, message: str, code: str) -> Problem:
    """The problem of example `i`: in its place of the spec, or as a row of the upload, whose rows come after these."""
    n_inline = len(spec.examples.inline)
    if i < n_inline:
        return Problem(pointer=f"/examples/inline/{i}/output", message=message, code=code)
    return Problem(pointer="/examples/upload", message=f"row {i - n_inline + 1} of the upload: {message}", code=code)


def _wrong_answers(spec: Spec, examples: Sequence[Example]) -> Iterator[Problem]:
    output = spec.output
    if isinstance(output, JsonOutput):
        yield from _wrong_json(spec, output, examples)
    elif isinstance(output, LabelOutput):
        known = {label.name: None for label in output.labels}
        for i, example in enumerate(examples):
            if example.output not in known:
                words = suggestion(example.output, list(known))
                yield _wrong(spec, i, f'there is no label "{example.output[:80]}"; {words}', "unknown_label")
    else:
        for i, example in enumerate(examples):
            if not example.output.strip() or len(example.output) > output.max_chars:
                words = f"has {len(example.output):,} characters; output.max_chars allows 1 to {output.max_chars:,}"
                yield _wrong(spec, i, words, "bad_answer")


def _wrong_json(spec: Spec, output: JsonOutput, examples: Sequence[Example]) -> Iterator[Problem]:
    if check_schema(output.answer_schema):
        return  # that is a problem of its own, and nothing is judged by what was not vetted
    n_chars = sum(len(example.output) for example in examples)
    errors_of = validator(output.answer_schema, budget=ValidationBudget(MAX_STEPS + STEPS_A_CHAR * n_chars))
    for i, example in enumerate(examples):
        try:
            errors = errors_of(parse_answer(example.output))
        except BadAnswer as fault:
            yield _wrong(spec, i, f"is no answer: {fault}", "bad_answer")
        except BudgetExceeded:
            words = (
                "the gold up to here takes all the time there is to compare it with output.schema; give the schema "
                "fewer branches in anyOf and oneOf, fewer required names or shorter patterns, or give fewer examples"
            )
            yield _wrong(spec, i, words, "too_slow")
            return
        else:
            if errors:
                yield _wrong(spec, i, f"does not fit output.schema: {errors[0]}", "schema_mismatch")


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
