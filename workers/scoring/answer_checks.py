"""The checks of a spec that an answer fails: a teacher's when it is labelled, a student's when it is evaluated.

Form comes first (JSON that fits the schema; a text that is there and not too long); on what has no form nothing else is
run. Python checks run in the sandbox, all rows in one go, which takes its time: never inside a transaction. The other
kinds judge texts: a part of a json answer that is no text is judged as its JSON text, and null is not judged, since a
schema that allows it means "nothing there". A pointer that finds nothing holds; that a field is there is for the schema
to ask.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import BadAnswer, parse_answer
from backend.domain.patterns.matching import occurs_in
from backend.domain.spec.outputs import check_name
from backend.domain.spec.parsing import (
    ContainsCheck,
    CopiedCheck,
    ExcludesCheck,
    JsonOutput,
    LengthCheck,
    OutputCheck,
    PythonCheck,
    RegexCheck,
    TextOutput,
)
from workers.sandbox import CheckFault, run_checks
from workers.sandbox.pointers import parts_at

SCHEMA, MAX_CHARS, EMPTY = "schema", "max_chars", "empty"  # the names of what is checked without being listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A check that an answer fails. `fault` is why a program could not say, "" where the answer is to blame; it is for
    the owner of the check, never for a log."""

    name: str
    fault: str = ""


def failed_checks(output: JsonOutput | TextOutput, rows: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The names of the checks that each (input, answer as written) fails, in the order of the spec; none: it is good.
    Raises SandboxUnavailable where the spec has python checks and this platform cannot hold them."""
    return [[failed.name for failed in row] for row in judge_answers(output, rows)]


def judge_answers(output: JsonOutput | TextOutput, rows: Sequence[tuple[str, str]]) -> list[list[Failed]]:
    """Judge as `failed_checks` does, and keep what the programs said of themselves."""
    read = [_read(output, answer) for _, answer in rows]
    good = [i for i, (failed, _) in enumerate(read) if failed is None]
    values = [(rows[i][0], read[i][1]) for i in good]
    programs = [check for check in output.checks if isinstance(check, PythonCheck)]
    verdicts = iter(run_checks(programs, values))
    failures = [[] if failed is None else [Failed(name=failed)] for failed, _ in read]
    for i, (text, value) in zip(good, values, strict=True):
        of_programs = iter(next(verdicts))
        for check in output.checks:
            holds = next(of_programs) if isinstance(check, PythonCheck) else _holds(check, text, value)
            if holds is not True:
                fault = holds.sentence if isinstance(holds, CheckFault) else ""
                failures[i].append(Failed(name=check_name(check), fault=fault))
    return failures


def _read(output: JsonOutput | TextOutput, answer: str) -> tuple[str | None, object]:
    """(what its form fails, the decoded answer)."""
    if isinstance(output, TextOutput):
        if not answer.strip():
            return EMPTY, None
        return (MAX_CHARS if len(answer) > output.max_chars else None), answer
    try:
        value = parse_answer(answer)
    except BadAnswer:
        return SCHEMA, None
    return (SCHEMA if validator(output.answer_schema)(value) else None), value


def _holds(check: OutputCheck, text: str, value: object) -> bool:
    parts = [value] if check.field is None else parts_at(value, check.field)
    return all(_fits(check, text, _as_text(part)) for part in parts if part is not None)


def _as_text(part: object) -> str:
    return part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)


def _fits(check: OutputCheck, text: str, part: str) -> bool:
    match check:
        case LengthCheck():
            return check.min_chars <= len(part) <= check.max_chars
        case RegexCheck():
            return occurs_in(check.pattern, part)
        case ContainsCheck():
            return any(phrase.casefold() in part.casefold() for phrase in check.any_of)
        case ExcludesCheck():
            return not any(phrase.casefold() in part.casefold() for phrase in check.any_of)
        case CopiedCheck():
            return _loose(part) in _loose(text)
        case _:
            raise TypeError(f"{type(check).__name__} is not judged here")


def _loose(text: str) -> str:
    return " ".join(text.casefold().split())
