"""Rules about what an answer is: labels that differ, a schema that can be decoded to, checks that can be run."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backend.domain.answers.json_schemas import check_schema, normal_schema
from backend.domain.errors import Problem
from backend.domain.patterns.matching import UnsafePattern, compile_pattern
from backend.domain.pointers import join, suggestion
from backend.domain.spec.checks import (
    CopiedCheck,
    LengthCheck,
    OutputCheck,
    PythonCheck,
    RegexCheck,
    check_name,
)
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput, LabelOutput, TextOutput


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
