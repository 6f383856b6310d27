"""A rule in words: when it applies and what it gives, for the console and the command line."""

import json

from backend.domain.rules.rule_list import Copy, FieldIs, LabelRule, Rule, RuleList


def describe(rule: Rule, rules: RuleList) -> tuple[str, str]:
    """Return (when it applies, what it gives)."""
    when = " and ".join(_condition(c, rules) for c in rule.when) or "always"
    unless = " or ".join(_condition(c, rules) for c in rule.unless)
    return when + (f", unless {unless}" if unless else ""), _outcome(rule, rules)


def _condition(condition: str | FieldIs, rules: RuleList) -> str:
    if isinstance(condition, FieldIs):
        return f"{_field(rules, condition.field)} is {json.dumps(condition.value, ensure_ascii=False)}"
    return json.dumps(condition, ensure_ascii=False)


def _outcome(rule: Rule, rules: RuleList) -> str:
    if isinstance(rule, LabelRule):
        return rule.answer
    if rule.is_absent:
        return f"{_field(rules, rule.field)}: left out"
    value = json.dumps(rule.value, ensure_ascii=False) if rule.copy is None else _describe_copy(rule.copy)
    return f"{_field(rules, rule.field)}: {value}"


def _describe_copy(copy: Copy) -> str:
    place = copy.pattern or (f"words between {copy.between[0]!r} and {copy.between[1]!r}" if copy.between else "")
    place = place or f"a phrase of list {copy.vocabulary + 1}"
    return f"{place}{f' after {copy.after!r}' if copy.after else ''}{' as a number' if copy.as_number else ''}"


def _field(rules: RuleList, number: int) -> str:
    return ".".join(rules.fields[number])
