"""The grammar teacher's answers to a json or text task, as a distribution over whole answers.

A message that one of its grammars wrote is read exactly (`message_reader`); a few answers are wrong in one field all
the same, by SLIPS, so that votes have something to settle. A message from elsewhere is guessed at, and its answers
differ more. Of a schema or a task that no grammar file knows, the answer is made from the schema and the words of the
message alone: enough to see the pipeline work, nothing to rely on.

The distribution is a grammar of one rule whose alternatives are the answers. So temperature, top-k, log-probs of tokens
and of given texts mean for an answer exactly what they mean for a message.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from backend.domain.answers.json_values import answer_text
from workers.teachers.grammar.message_reader import Reader, Reading, entry_of
from workers.teachers.grammar.number_words import number_of
from workers.teachers.grammar.pcfg import Alternative, Grammar

START = "answer"
SLIPS = {True: 0.06, False: 0.25}  # by whether the grammar could have written the message: share of wrong answers
MIN_WEIGHT = 1e-9


def answer_grammar(
    reader: Reader, grammar: Grammar, text: str, schema: Mapping[str, Any] | None, longest: int
) -> Grammar:
    """The answers to `text`: JSON for `schema`, one sentence of at most `longest` characters where it is None."""
    weights: dict[str, float] = {}
    for reading, p in _readings(reader, text).items():
        slip = SLIPS[reading.sure]
        variants = list(_slip_variants(grammar, reading))
        shares = [(reading, p * (1 - slip if variants else 1.0))]
        shares += [(variant, p * slip / len(variants)) for variant in variants]
        for one, weight in shares:
            answer = _json(grammar, one, text, schema) if schema is not None else _sentence(grammar, one, text, longest)
            weights[answer] = weights.get(answer, 0.0) + weight
    return as_grammar(weights)


def as_grammar(weights: Mapping[str, float]) -> Grammar:
    """One rule that writes each text with its weight."""
    rows = tuple(Alternative(weight, (text,)) for text, weight in weights.items() if weight > MIN_WEIGHT)
    return Grammar(rules={START: rows}, slices={}, revision="")


def _readings(reader: Reader, text: str) -> Mapping[Reading, float]:
    nothing = Reading(slice_name="", captures=(), sure=False)
    return reader.readings(text) if reader.can_read else {nothing: 1.0}


def _slip_variants(grammar: Grammar, reading: Reading) -> Iterator[Reading]:
    """The ways to get one field wrong: overlooked, or a number off by one."""
    for at, (name, value) in enumerate(reading.captures):
        others = reading.captures[:at], reading.captures[at + 1 :]
        yield Reading(slice_name=reading.slice_name, captures=others[0] + others[1], sure=reading.sure)
        if grammar.fields[entry_of(name)[0]].is_count:
            wrong = ((name, str((number_of(value) or 1) + 1)),)
            yield Reading(slice_name=reading.slice_name, captures=others[0] + wrong + others[1], sure=reading.sure)


def _values(grammar: Grammar, reading: Reading) -> dict[str, Any]:
    """The fields that the reading has, typed."""
    known: dict[str, Any] = {
        name: number_of(text) if grammar.fields[entry_of(name)[0]].is_count else text for name, text in reading.captures
    }
    return known | dict(grammar.slices[reading.slice_name].values) if reading.slice_name else known


def _entries(values: Mapping[str, Any], names: Collection[str]) -> list[dict[str, Any]]:
    """The things that the message names one after the other, each with those of its fields that are in `names`."""
    entries: dict[int, dict[str, Any]] = {}
    for key, value in values.items():
        name, entry = entry_of(key)
        if name in names and value is not None:
            entries.setdefault(entry, {})[name] = value
    return [entries[entry] for entry in sorted(entries)]


# --- JSON


def _json(grammar: Grammar, reading: Reading, text: str, schema: Mapping[str, Any]) -> str:
    known = set(grammar.fields) | {name for slice_ in grammar.slices.values() for name in slice_.values}
    is_ours = bool(known & _names(schema))
    values = _values(grammar, reading) if is_ours else {}
    value = _fitting(schema, values, text, depth=0)
    return answer_text(value, schema)


def _names(schema: Mapping[str, Any]) -> set[str]:
    """The properties of an object, and those of the objects in its lists."""
    own: Mapping[str, Any] = schema.get("properties", {})
    return set(own).union(*(_item_names(part) for part in own.values() if isinstance(part, dict)))


def _item_names(schema: Mapping[str, Any]) -> set[str]:
    items = schema.get("items")
    return set(items.get("properties", {})) if isinstance(items, dict) else set()


def _fitting(schema: Mapping[str, Any], values: Mapping[str, Any], text: str, depth: int) -> Any:
    """A value for a normal schema: what was read where it fits, else nothing, else the least that the schema takes."""
    if depth > 8:
        return None
    for key in ("anyOf", "oneOf"):
        branches = [branch for branch in schema.get(key, ()) if isinstance(branch, dict)]
        if branches:
            real = [branch for branch in branches if branch.get("type") != "null"]
            return _fitting(real[0] if real and values else branches[-1], values, text, depth + 1)
    if "properties" in schema:
        required = set(schema.get("required", ()))
        made = {}
        for name, part in schema["properties"].items():
            value = _field(part if isinstance(part, dict) else {}, name, values, text, depth)
            if value is not None or name in required:
                made[name] = value
        return made
    if _allows(schema, "array"):
        entries = _entries(values, _item_names(schema))[: schema.get("maxItems")]
        return [_fitting(schema["items"], entry, text, depth + 1) for entry in entries]
    return _least(schema, text)


def _field(schema: Mapping[str, Any], name: str, values: Mapping[str, Any], text: str, depth: int) -> Any:
    value = values.get(name)
    choices = schema.get("enum")
    if value is not None and (choices is None or value in choices):
        if isinstance(value, int) and not (_allows(schema, "integer") or _allows(schema, "number")):
            return str(value)
        return value
    if _is_nullable(schema):
        return None
    return _fitting(schema, values if _item_names(schema) else {}, text, depth + 1)


def _is_nullable(schema: Mapping[str, Any]) -> bool:
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return (
        _allows(schema, "null")
        or None in schema.get("enum", ())
        or any(isinstance(branch, dict) and branch.get("type") == "null" for branch in branches)
    )


def _allows(schema: Mapping[str, Any], kind: str) -> bool:
    types = schema.get("type", ())
    return kind == types or (isinstance(types, list) and kind in types)


def _least(schema: Mapping[str, Any], text: str) -> Any:
    """A value of the schema's type out of the message's words, or an empty one."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        named = [c for c in schema["enum"] if isinstance(c, str) and c.casefold() in text.casefold()]
        return (named or schema["enum"])[0]
    if _allows(schema, "string"):
        return " ".join(text.split()[: max(1, min(8, schema.get("minLength", 1)))])[: schema.get("maxLength", 200)]
    if _allows(schema, "boolean"):
        return False
    if _allows(schema, "integer") or _allows(schema, "number"):
        number = number_of(text)
        return max(number if number is not None else 0, int(schema.get("minimum", 0)))
    return {} if _allows(schema, "object") else None


# --- text


def _sentence(grammar: Grammar, reading: Reading, text: str, longest: int) -> str:
    """The first sentence of the slice whose fields were all read; without any field, the message's own first one."""
    values = _values(grammar, reading)
    lines = grammar.slices[reading.slice_name].says if reading.slice_name and reading.captures else ()
    for line in lines:
        needed = re.findall(r"\{(\w+)\}", line)
        if all(values.get(name) is not None for name in needed):
            sentence = re.sub(r"\{(\w+)\}", lambda match: _with_count(match[1], values), line)
            return sentence[:longest]
    first = re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]
    return first[:longest] or "-"


def _with_count(name: str, values: Mapping[str, Any]) -> str:
    counted = name == "product" and values.get("quantity") is not None
    return f"{values['quantity']} {values[name]}" if counted else str(values[name])


# --- which of two answers


def preference_grammar(own: str, a: str, b: str) -> Grammar:
    """A, B or TIE by how close each answer is to the one that the teacher itself finds likeliest: word F1. A lead of
    less than a tenth is a tie more often than not; the places weigh nothing."""
    lead = _closeness(a, own) - _closeness(b, own)
    return as_grammar({"A": 2.0 ** (40 * (lead - 0.1)), "B": 2.0 ** (40 * (-lead - 0.1)), "TIE": 1.0})


def _closeness(text: str, own: str) -> float:
    mine, ours = _words(text), _words(own)
    common = len(mine & ours)
    return 2 * common / (len(mine) + len(ours)) if common else 0.0


def _words(text: str) -> set[str]:
    return {word.casefold() for word in re.findall(r"[\w-]+", text)}


def likeliest_answer(answers: Grammar) -> str:
    best = max(answers.rules[START], key=lambda row: row.weight)
    return "".join(str(part) for part in best.parts)


def read_schema(line: str) -> dict[str, Any] | None:
    """The schema of a prompt's `Schema:` line; None for what is none."""
    try:
        schema = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return schema if isinstance(schema, dict) else None
