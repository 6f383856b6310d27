"""The demand of a check in words, as a teacher reads it."""

import json
from collections.abc import Sequence

from backend.domain.spec.outputs import ContainsCheck, CopiedCheck, ExcludesCheck, LengthCheck, OutputCheck

MAX_SHOWN_PHRASES = 20  # of a check's phrases; a check may hold 200


def rule_lines(checks: Sequence[OutputCheck]) -> list[str]:
    """One line a demand; none for a pattern or a program, which are their owner's to explain in the task."""
    rules = [_rule(check) for check in checks]
    return [f"Rule: {rule}" for rule in dict.fromkeys(rules) if rule]


def _rule(check: OutputCheck) -> str:
    what = "the answer" if check.field is None else " ".join(check.field.split())
    match check:
        case LengthCheck():
            return f"{what} has {check.min_chars} to {check.max_chars} characters"
        case ContainsCheck():
            return f"{what} contains one of {_phrases(check.any_of)}"
        case ExcludesCheck():
            return f"{what} contains none of {_phrases(check.any_of)}"
        case CopiedCheck():
            return f"{what} is copied from the message as it stands there"
        case _:
            return ""


def _phrases(phrases: list[str]) -> str:
    return json.dumps([" ".join(phrase.split()) for phrase in phrases[:MAX_SHOWN_PHRASES]], ensure_ascii=False)
