"""The line about gold that fails the spec's own checks. A model that answers as such gold does gets no mark for it, and
what it can have at the most may be below the gate."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backend.domain.answers.json_values import FieldCounts, fields_of, leaves, parse_answer
from backend.domain.evaluation.classification import PPM, interval_ppm
from backend.domain.evaluation.gate_floors import required_ppm
from backend.domain.evaluation.generative import MIN_FIELD
from backend.domain.number_words import percent
from backend.domain.planning.preflight.lines import Check, PreflightLine, failed_line, warning_line
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput, PythonCheck, check_name

CODE = "gold_fails_checks"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedGold:
    """A held-out answer as gold writes it, and the names of the checks that it fails."""

    answer: str
    failed: tuple[str, ...] = ()


def check_lines(spec: Spec, heldout: Sequence[JudgedGold]) -> list[PreflightLine]:
    """A warning where held-out gold fails checks; a failure where no answers of a json task that pass them can pass the
    gate. What a text is held to is not gold's wording."""
    names = Counter(name for row in heldout for name in row.failed)
    if not names:
        return []
    n_bad = sum(bool(row.failed) for row in heldout)
    listed = ", ".join(f"{name}: {count}" for name, count in names.most_common(3))
    sentence = f"{n_bad} of {len(heldout)} held-out answers of the gold fail the spec's own checks ({listed})"
    what_to_do = f"Correct these answers, or the check {names.most_common(1)[0][0]!r} in output.checks."
    shortfall = next(_shortfalls(spec, heldout), None)
    if shortfall is not None:
        return [failed_line(Check.GATE, f"{sentence}: {shortfall}.", code=CODE, what_to_do=what_to_do)]
    text = f"{sentence}: a model that answers as they do gets no mark for them."
    return [warning_line(Check.GATE, text, code=CODE, what_to_do=what_to_do)]


def _shortfalls(spec: Spec, heldout: Sequence[JudgedGold]) -> Iterator[str]:
    """The floors of the gate that no answers pass which all pass the checks."""
    output, gate = spec.output, spec.gate
    if not isinstance(output, JsonOutput):
        return
    required = required_ppm(gate.accuracy_lower)
    # the spelling of a whole answer is not gold's, a model orders its fields by the schema; and what a program looks
    # at may be what no mark depends on, the order of a list
    of_values = {check_name(one) for one in output.checks if one.field is not None and not isinstance(one, PythonCheck)}
    marks = sum(PPM if of_values.isdisjoint(row.failed) else _most_ppm(output, row.answer) for row in heldout)
    bound = interval_ppm(marks / PPM, len(heldout), gate.confidence)[0]
    if bound < required:
        yield (
            f"answers that pass them have a lower bound of the accuracy of {percent(bound)} at the most, and "
            f"gate.accuracy_lower asks for {percent(required)}"
        )
    needed = required_ppm(gate.worst_class_recall)
    for field, most in _fields_most(output, heldout):
        if most < needed:
            yield (
                f"answers that pass them have an F1 of the field {field!r} of {percent(most)} at the most, and "
                f"gate.worst_class_recall asks for {percent(needed)}"
            )


def _most_ppm(output: JsonOutput, answer: str) -> int:
    """The most that an answer can have beside gold that fails checks: to pass them, it differs in a field at least."""
    if output.accuracy == "exact":
        return 0
    return FieldCounts(tp=leaves(parse_answer(answer)).total(), fp=1, fn=0).f1_ppm


def _fields_most(output: JsonOutput, heldout: Sequence[JudgedGold]) -> Iterator[tuple[str, int]]:
    """The most F1 of each field that a check judges alone, where the gate judges it too."""
    fields = [fields_of(parse_answer(row.answer)) for row in heldout]
    for check in output.checks:
        if check.field is None or "*" in check.field or isinstance(check, PythonCheck):
            continue
        holders = [row for row, own in zip(heldout, fields, strict=True) if check.field in own]
        n_bad = sum(check_name(check) in row.failed for row in holders)
        if len(holders) >= MIN_FIELD and n_bad:
            yield check.field, FieldCounts(tp=len(holders) - n_bad, fp=0, fn=n_bad).f1_ppm
