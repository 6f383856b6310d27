"""A stranger's rules.json, vetted: what comes out of here can be compiled, evaluated and exported without a further
look. Every text is in the normal form of `wording`, every index inside its list, every list bounded.
"""

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from backend.domain.answers.json_values import MAX_INTEGER
from backend.domain.rules.rule_list import (
    EMPTY,
    FORMAT,
    Condition,
    Copy,
    Evidence,
    FieldIs,
    FieldRule,
    InvalidRules,
    LabelRule,
    Rule,
    RuleList,
)
from backend.domain.rules.text_patterns import SOURCES
from backend.domain.rules.wording import words_of

MAX_RULES_BYTES = 1 << 20
MAX_RULES = 5_000
MAX_CONDITIONS = 6
MAX_PHRASE_WORDS = 8
MAX_PHRASE_CHARS = 120
MAX_ANSWER_CHARS = 1_000
MAX_FIELDS = 200
MAX_DEPTH = 8
MAX_LISTED = 30_000  # phrases of all vocabularies, and known words
PPM = 1_000_000
KNOWN = "<known>"
_EVIDENCE = ("seen", "support", "right", "low_ppm")

T = TypeVar("T")


def read_rules(data: bytes) -> RuleList:
    """`[]`, what artifacts carried before there were rules, is an empty list. Raises InvalidRules."""
    if len(data) > MAX_RULES_BYTES:
        raise InvalidRules(f"rules.json has {len(data):,} bytes; at most {MAX_RULES_BYTES:,} are read.")
    try:
        value = json.loads(data, object_pairs_hook=_object, parse_float=_no_float, parse_constant=_no_float)
    except (ValueError, RecursionError) as error:
        raise InvalidRules(f"rules.json is not JSON that can be read: {error}") from error
    return EMPTY if value == [] else _list_of(value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands in it twice")
    return made


def _no_float(_digits: str) -> float:
    raise ValueError("it holds a number that is not whole")


def _list_of(value: Any) -> RuleList:
    task = value.get("task") if isinstance(value, dict) else None
    if not isinstance(value, dict) or value.get("format") != FORMAT or task not in ("label", "json"):
        _refuse(f"it is no document of format {FORMAT} for a label or json task")
    if task == "label":
        _exactly(value, {"format", "task", "rules"})
        return RuleList(task=task, rules=tuple(_items(value["rules"], MAX_RULES, "rules", _label_rule)))
    _exactly(value, {"format", "task", "rules", "fields", "vocabularies", "known", *({"low_ppm"} & set(value))})
    phrases = [0]

    def vocabulary(item: Any) -> tuple[str, ...]:
        listed = tuple(_items(item, MAX_LISTED - phrases[0], "phrases", _plain_phrase))
        phrases[0] += len(listed)
        return listed

    fields = tuple(_items(value["fields"], MAX_FIELDS, "fields", _path))
    if any(one[: len(other)] == other for one in fields for other in fields if one is not other):
        _refuse("one of its fields is inside another, or stands in it twice")
    vocabularies = tuple(_items(value["vocabularies"], MAX_FIELDS, "vocabularies", vocabulary))
    known = tuple(_items(value["known"], MAX_LISTED - phrases[0], "known words", _word))
    rules = tuple(_items(value["rules"], MAX_RULES, "rules", lambda item: _field_rule(item, fields, vocabularies)))
    _check_order(rules)
    low_ppm = value.get("low_ppm", 0)
    if type(low_ppm) is not int or not 0 <= low_ppm <= PPM:
        _refuse("its precision is no whole number of parts per million")
    return RuleList(task=task, rules=rules, fields=fields, vocabularies=vocabularies, known=known, low_ppm=low_ppm)


def _refuse(why: str) -> NoReturn:
    raise InvalidRules(f"rules.json cannot be used: {why}.")


def _exactly(value: Any, names: set[str]) -> None:
    if not isinstance(value, dict) or set(value) != names:
        _refuse(f"a part of it does not have just the keys {', '.join(sorted(names))}")


def _items(value: Any, most: int, what: str, read: Callable[[Any], T]) -> list[T]:
    if not isinstance(value, list) or len(value) > most:
        _refuse(f"its {what} are no list of at most {most:,}")
    return [read(item) for item in value]


def _text(value: Any, most: int, what: str) -> str:
    if not isinstance(value, str) or len(value) > most or "\0" in value:
        _refuse(f"{what} is no text of at most {most} characters")
    if any("\ud800" <= char <= "\udfff" for char in value):
        _refuse(f"{what} holds half of a surrogate pair")
    return value


def _plain_phrase(value: Any) -> str:
    phrase = _text(value, MAX_PHRASE_CHARS, "a phrase")
    words = words_of(phrase)
    if not words or len(words) > MAX_PHRASE_WORDS or " ".join(words) != phrase:
        _refuse(f"a phrase is not one to {MAX_PHRASE_WORDS} words in their normal form")
    return phrase


def _word(value: Any) -> str:
    if " " in (word := _plain_phrase(value)):
        _refuse("a known word is more than one")
    return word


def _phrase(value: Any) -> str:
    """Words, `#` among them, `^` before them, `$` behind them."""
    phrase = _text(value, MAX_PHRASE_CHARS, "a condition")
    parts = phrase.split(" ")
    inner = parts[parts[:1] == ["^"] : len(parts) - (parts[-1:] == ["$"])]
    if "#" in inner and any(part.isdigit() for part in inner):
        _refuse("a condition asks for a certain number and for any")
    _plain_phrase(" ".join("0" if part == "#" else part for part in inner))
    return phrase


def _condition_text(value: Any) -> str:
    if isinstance(value, str) and value.startswith("<"):
        if value[1:-1] not in SOURCES or value[-1] != ">":
            _refuse("it names a pattern that is not known here")
        return value
    return _phrase(value)


def _evidence(value: dict[str, Any]) -> Evidence:
    counts = {name: value[name] for name in _EVIDENCE}
    if any(type(count) is not int or not 0 <= count <= MAX_INTEGER for count in counts.values()):
        _refuse("a count of a rule is no whole number of 0 or more")
    return Evidence(**counts)


def _label_rule(value: Any) -> LabelRule:
    _exactly(value, {"when", "unless", "answer", *_EVIDENCE})
    when, unless = (tuple(_items(value[k], MAX_CONDITIONS, "conditions", _condition_text)) for k in ("when", "unless"))
    if not when:
        _refuse("a rule has no condition")
    answer = _text(value["answer"], MAX_ANSWER_CHARS, "an answer")
    return LabelRule(when=when, unless=unless, answer=answer, evidence=_evidence(value))


def _path(value: Any) -> tuple[str, ...]:
    path = tuple(_items(value, MAX_DEPTH, "steps of a path", lambda step: _text(step, MAX_ANSWER_CHARS, "a name")))
    return path or _refuse("a field has no name")


def _scalar(value: Any) -> str | int | bool | None:
    if isinstance(value, str):
        return _text(value, MAX_ANSWER_CHARS, "a value")
    if value is None or isinstance(value, bool):
        return value
    if type(value) is not int or abs(value) > MAX_INTEGER:
        _refuse("a value is no text, whole number, truth value or null")
    return value


def _index(value: Any, length: int) -> int:
    if type(value) is not int or not 0 <= value < length:
        _refuse("it refers to a field or vocabulary that it does not have")
    return value


def _field_rule(
    value: Any, fields: tuple[tuple[str, ...], ...], vocabularies: tuple[tuple[str, ...], ...]
) -> FieldRule:
    kinds = [kind for kind in ("value", "copy", "absent") if isinstance(value, dict) and kind in value]
    _exactly(value, {"field", "when", "unless", *kinds[:1], *_EVIDENCE})

    def condition(item: Any) -> Condition:
        if not isinstance(item, dict):
            return item if item == KNOWN else _condition_text(item)
        _exactly(item, {"field", "is"})
        return FieldIs(field=_index(item["field"], len(fields)), value=_scalar(item["is"]))

    when, unless = (tuple(_items(value[key], MAX_CONDITIONS, "conditions", condition)) for key in ("when", "unless"))
    if not kinds or KNOWN in unless or value.get("absent", True) is not True:
        _refuse("a rule gives nothing, or depends on what is not known")
    return FieldRule(
        field=_index(value["field"], len(fields)),
        when=when,
        unless=unless,
        value=_scalar(value.get("value")),
        copy=_copy(value["copy"], len(vocabularies)) if "copy" in value else None,
        is_absent="absent" in value,
        evidence=_evidence(value),
    )


def _copy(value: Any, n_vocabularies: int) -> Copy:
    kinds = [kind for kind in ("pattern", "vocabulary", "between") if isinstance(value, dict) and kind in value]
    options = [name for name in ("after", "as_number") if isinstance(value, dict) and name in value]
    _exactly(value, {*kinds[:1], *options})
    if not kinds or (kinds == ["between"] and options) or value.get("as_number", True) is not True:
        _refuse("a copy names no pattern, vocabulary or pair of phrases")
    if "pattern" in value and (not isinstance(value["pattern"], str) or value["pattern"] not in SOURCES):
        _refuse("it names a pattern that is not known here")
    if "as_number" in value and value.get("pattern") not in ("number", "integer"):
        _refuse("it takes for a number what may be none")
    ends = None
    if "between" in value:
        first, *rest = _items(value["between"], 2, "phrases of a copy", _end) or _refuse("a copy is between nothing")
        ends = (first, rest[0] if rest else _refuse("a copy has one end"))
    return Copy(
        pattern=value.get("pattern", ""),
        vocabulary=_index(value["vocabulary"], n_vocabularies) if "vocabulary" in value else -1,
        between=ends,
        after=_plain_phrase(value["after"]) if "after" in value else "",
        as_number="as_number" in value,
    )


def _end(value: Any) -> str:
    """`^` and `$` alone are the ends of the text."""
    return value if value in ("^", "$") else _plain_phrase(value)


def _check_order(rules: tuple[Rule, ...]) -> None:
    """The rules of a field stand together, and only what was given before is asked for."""
    fields: list[int] = []
    for rule in rules:
        assert isinstance(rule, FieldRule)
        if rule.field in fields[:-1]:
            _refuse("the rules of a field do not stand together")
        if rule.field not in fields:
            fields.append(rule.field)
        asked = [c.field for c in (*rule.when, *rule.unless) if isinstance(c, FieldIs)]
        if any(field not in fields[:-1] for field in asked):
            _refuse("a rule asks for a field that is given after it")
