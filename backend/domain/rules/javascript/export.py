"""A rule list as one JavaScript function without dependencies."""

import json
import re
from itertools import groupby
from typing import Any

from backend.domain.rules import places, wording
from backend.domain.rules.extraction import MAX_WORDS, step_of, tree_of
from backend.domain.rules.javascript.automaton import AUTOMATON
from backend.domain.rules.javascript.field_tables import FIELD_PHRASES, FIELD_TABLES
from backend.domain.rules.javascript.fields import FIELDS
from backend.domain.rules.javascript.labels import LABEL, LABEL_PHRASES
from backend.domain.rules.rule_list import FieldRule, LabelRule, RuleList
from backend.domain.rules.text_patterns import SOURCES

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,60}")
_HOLE = re.compile(r"\$([A-Z_]+)\$")
# what every exported module begins with; `$...$` is filled in
WORDS = """
const TYPES = new Uint8Array(65536), LOWER = new Uint16Array(65536);
const LETTER = 0, SEPARATOR = 1, DROPPED = 2, SINGLE = 3;
{
  const alphabet = $ALPHABET$;
  for (let unit = 0; unit < 65536; unit++) LOWER[unit] = unit;
  for (const [first, last] of alphabet.singles) TYPES.fill(SINGLE, first, last + 1);
  for (const [first, last] of alphabet.separators) TYPES.fill(SEPARATOR, first, last + 1);
  for (const unit of alphabet.dropped) TYPES[unit] = DROPPED;
  for (const [first, last, shift] of alphabet.lowered)
    for (let unit = first; unit <= last; unit++) LOWER[unit] = unit + shift;
}

const PATTERNS = $PATTERNS$;
"""


def to_javascript(rules: RuleList, *, name: str = "answer") -> str:
    """An ES module that exports `name(text)`: the answer text or null, equal to `closure.compile_rules` on every
    string that JSON can carry.

    The list's texts go in as JSON with everything outside of ASCII escaped, so none of them can become code. Raises
    ValueError for a name that is no plain word."""
    if not _NAME.fullmatch(name):
        raise ValueError("the function's name is letters and digits, a letter first")
    alphabet = {
        "singles": wording.SINGLES,
        "separators": wording.SEPARATORS,
        "dropped": wording.DROPPED,
        "lowered": wording.LOWERED,
    }
    filled = {"ALPHABET": _literal(alphabet), "PATTERNS": _patterns(), "NAME": name}
    filled |= _of_labels(rules) if rules.task == "label" else _of_fields(rules)
    if rules.task == "label":
        body = WORDS + LABEL_PHRASES + AUTOMATON + LABEL
    else:
        body = WORDS + FIELD_PHRASES + AUTOMATON + FIELD_TABLES + FIELDS
    head = (
        f"// {rules.n} rules of a {rules.task} task, rules.json sha256 {rules.sha256}. Made by kolm; no dependencies.\n"
    )
    return head + _HOLE.sub(lambda hole: filled[hole[1]], body)


def _literal(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _patterns() -> str:
    """The patterns by name, as literals: each means the same to both languages."""
    return "{" + ", ".join(f"{name}: new RegExp({_literal(source)})" for name, source in SOURCES.items()) + "}"


def _of_labels(rules: RuleList) -> dict[str, str]:
    """A rule as [phrases, phrases it must not meet, patterns, patterns it must not meet, answer], by number."""
    known = [rule for rule in rules.rules if isinstance(rule, LabelRule)]
    phrases = sorted({c for rule in known for c in (*rule.when, *rule.unless) if c[0] != "<"})
    answers = sorted({rule.answer for rule in known})
    number = {phrase: i for i, phrase in enumerate(phrases)}

    def split(conditions: tuple[str, ...]) -> tuple[list[int], list[str]]:
        named = [c[1:-1] for c in conditions if c[0] == "<"]
        return [number[c] for c in conditions if c[0] != "<"], named

    rows = []
    for rule in known:
        (when, patterns), (unless, without) = split(rule.when), split(rule.unless)
        rows.append([when, unless, patterns, without, answers.index(rule.answer)])
    return {"ANSWERS": _literal(answers), "PHRASES": _literal(phrases), "RULES": _literal(rows)}


def _of_fields(rules: RuleList) -> dict[str, str]:
    known = [rule for rule in rules.rules if isinstance(rule, FieldRule)]
    groups = [[_field_rule(rule) for rule in group] for _, group in groupby(known, lambda rule: rule.field)]
    return {
        "TREE": _literal(tree_of(rules.fields)),
        "N_FIELDS": str(len(rules.fields)),
        "GROUPS": _literal(groups),
        "KNOWN": _literal(rules.known),
        "VOCABULARIES": _literal(rules.vocabularies),
        "MAX_WORDS": str(MAX_WORDS),
        "MAX_BETWEEN": str(places.MAX_BETWEEN),
        "MAX_DIGITS": str(places.MAX_DIGITS),
    }


def _field_rule(rule: FieldRule) -> dict[str, Any]:
    step = step_of(rule, ((),) * 1_000)
    words = {
        name: [c for c in conditions if isinstance(c, str) and c != "<known>"]
        for name, conditions in (("when", rule.when), ("unless", rule.unless))
    }
    return words | {
        "field": rule.field,
        "asks": step.asks,
        "bars": step.bars,
        "needsKnown": step.needs_known,
        "given": step.literal,
        "absent": step.is_absent,
        "copy": None if rule.copy is None else rule.copy.to_json(),
    }
