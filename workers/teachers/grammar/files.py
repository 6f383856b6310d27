"""Reads and checks a grammar file.

YAML:  rules:  {name: ["text with {other} rules", [3, "an alternative of weight 3"]]}
       slices: {name: {start: "{rule}", label: refund_request}}           for label tasks, or
               {name: {start: "{rule}", values: {action: cancel}, says: ["Wants to cancel {order}."]}}
       fields: {order: {rules: [number], kind: text or count, find: ['[0-9]{5}']}}
       synonyms: {other: [anything_else]}   names of a label that a language model would take for the same
A slice with `part_of: name` writes some of that slice's texts and no others; the label's own texts are without it.
`{name|lower}`, `{name|bare}` (no punctuation), `{name|upper}` change every letter below: homomorphisms, so the
result is still such a grammar; `{name|sloppy}` is below as it is typed in haste (typing_slips). What a field's rule
writes below `{name|second}` is the second thing's, below `{name|both}` of both; a sentence has it as `{order_2}`.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from workers.teachers.grammar.pcfg import Alternative, AnswerField, Grammar, GrammarSlice, Part, Ref
from workers.teachers.grammar.typing_slips import sloppy_parts

_FOLDER = Path(__file__).parent / "grammars"
DEFAULT_GRAMMAR = _FOLDER / "support.yaml"
_OTHERS = ("orders", "repairs", "sentiment", "personal_data", "urgency", "spam", "languages")
SHIPPED = (DEFAULT_GRAMMAR, *(_FOLDER / f"{name}.yaml" for name in _OTHERS))
SLOPPY = "sloppy"
_PART = re.compile(r"\{([a-z0-9_]+(?:\|[a-z]+)*)\}|([^{}]+)")
_FILTERS: Mapping[str, Callable[[str], str]] = {
    "lower": str.lower,
    "upper": str.upper,
    "bare": lambda text: re.sub(r"[.,!?';:]", "", text),
    "second": str,
    "both": str,
    SLOPPY: str,
}


class BadGrammar(ValueError):
    """The file breaks a rule of the format; the message names the place."""


def shipped_grammar() -> Grammar:
    """All that this release's grammar teacher knows."""
    return load_grammar(*(path.read_bytes() for path in SHIPPED))


def load_grammar(*files: bytes) -> Grammar:
    """Read and check a grammar file, or several as one: no two of them may use a name. Raises BadGrammar."""
    joined: dict[str, dict[str, object]] = {"rules": {}, "slices": {}, "fields": {}, "synonyms": {}}
    for data in files:
        try:
            document = yaml.safe_load(data)
        except yaml.YAMLError as wrong:
            raise BadGrammar("not valid YAML") from wrong
        if not isinstance(document, dict) or not isinstance(document.get("rules"), dict):
            raise BadGrammar("a grammar is a mapping with `rules` and `slices`")
        for part, merged in joined.items():
            more = document.get(part) or {}
            if merged.keys() & more.keys():
                raise BadGrammar(f"two files have {part} called {sorted(merged.keys() & more.keys())}")
            merged.update(more)
    revision = hashlib.sha256(b"\0".join(files)).hexdigest()
    return build_grammar(
        joined["rules"], joined["slices"], revision=revision, fields=joined["fields"], synonyms=joined["synonyms"]
    )


def build_grammar(
    rules: Mapping[str, object],
    slices: Mapping[str, object],
    *,
    revision: str,
    fields: Mapping[str, object] | None = None,
    synonyms: Mapping[str, object] | None = None,
) -> Grammar:
    """A checked grammar from plain values: the parts of the YAML form."""
    plain = {str(name): _alternatives(str(name), rows) for name, rows in rules.items()}
    grammar_slices: dict[str, GrammarSlice] = {}
    for name, row in slices.items():
        grammar_slices[str(name)] = _slice(str(name), row)
        plain[f"slice:{name}"] = _alternatives(str(name), [row["start"]])  # type: ignore[index]
    expanded: dict[str, tuple[Alternative, ...]] = {}
    for name in plain:
        _expand_filters(name, plain, expanded, ())
    read = {str(name): _field(str(name), row, plain) for name, row in (fields or {}).items()}
    _check_parts(grammar_slices)
    return Grammar(
        rules=expanded,
        slices=grammar_slices,
        revision=revision,
        fields=read,
        synonyms=_synonyms(synonyms or {}, {s.label for s in grammar_slices.values()}),
    )


def _check_parts(slices: Mapping[str, GrammarSlice]) -> None:
    for name, part in slices.items():
        whole = slices.get(part.part_of)
        if part.part_of and (whole is None or whole.part_of or whole.label != part.label):
            raise BadGrammar(f"slice {name}: `part_of` names a slice of its label that is itself no part")


def _synonyms(rows: Mapping[str, object], labels: set[str]) -> dict[str, str]:
    """{synonym: label}."""
    means: dict[str, str] = {}
    for label, names in rows.items():
        if label not in labels or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BadGrammar(f"synonyms of {label!r}: a list of names, of a label of this grammar")
        for name in names:
            if name in labels or name in means:
                raise BadGrammar(f"synonym {name!r} is a label already, or the synonym of another")
            means[name] = str(label)
    return means


def _slice(name: str, row: object) -> GrammarSlice:
    if not isinstance(row, dict) or not isinstance(row.get("start"), str):
        raise BadGrammar(f"slice {name}: needs `start`")
    values, says = row.get("values") or {}, row.get("says") or []
    if not isinstance(row.get("label", None if not values else ""), str):
        raise BadGrammar(f"slice {name}: needs `label`, or `values`")
    if not isinstance(row.get("part_of", ""), str):
        raise BadGrammar(f"slice {name}: `part_of` is the name of a slice")
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise BadGrammar(f"slice {name}: `values` maps fields to texts")
    if not isinstance(says, list) or not all(isinstance(line, str) for line in says):
        raise BadGrammar(f"slice {name}: `says` is a list of sentences")
    return GrammarSlice(
        name=name,
        start=f"slice:{name}",
        label=row.get("label", ""),
        part_of=row.get("part_of", ""),
        values=dict(values),
        says=tuple(says),
    )


def _field(name: str, row: object, rules: Mapping[str, object]) -> AnswerField:
    if not isinstance(row, dict) or row.get("kind", "text") not in ("text", "count"):
        raise BadGrammar(f"field {name}: needs `rules`, and its kind is text or count")
    named, patterns = row.get("rules") or [], row.get("find") or []
    if not isinstance(named, list) or not named or not set(named) <= set(rules):
        raise BadGrammar(f"field {name}: `rules` names rules of this grammar")
    try:
        find = tuple(re.compile(pattern).pattern for pattern in patterns)
    except (re.error, TypeError) as wrong:
        raise BadGrammar(f"field {name}: `find` holds regular expressions") from wrong
    return AnswerField(rules=tuple(named), is_count=row.get("kind") == "count", find=find)


def _alternatives(name: str, rows: object) -> tuple[Alternative, ...]:
    if not isinstance(rows, list) or not rows:
        raise BadGrammar(f"rule {name}: needs a list of alternatives")
    return tuple(_alternative(name, row) for row in rows)


def _alternative(name: str, row: object) -> Alternative:
    weight, text = row if isinstance(row, list) and len(row) == 2 else (1, row)
    if not isinstance(text, str) or isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
        raise BadGrammar(f"rule {name}: an alternative is a text or [weight above 0, text], not {row!r}")
    if re.search(r"[^\S ]", text):
        raise BadGrammar(f"rule {name}: the only white space in a grammar is the space")
    parts: list[Part] = [Ref(ref) if ref else literal for ref, literal in _PART.findall(text)]
    if "".join("{" + p.name + "}" if isinstance(p, Ref) else p for p in parts) != text:
        raise BadGrammar(f"rule {name}: unbalanced or empty braces in {text!r}")
    return Alternative(float(weight), tuple(parts))


def _expand_filters(
    name: str,
    plain: Mapping[str, tuple[Alternative, ...]],
    into: dict[str, tuple[Alternative, ...]],
    path: tuple[str, ...],
) -> None:
    """Write rule `name` ("rule|filter|filter") and all below it into `into`; depth first, so a cycle shows itself."""
    if name in path:
        raise BadGrammar(f"the rules go in a circle: {' > '.join((*path, name))}")
    if name in into:
        return
    base, *filters = name.split("|")
    if base not in plain or any(f not in _FILTERS for f in filters):
        raise BadGrammar(f"no rule or filter {name!r} (used in {path[-1] if path else 'the slices'})")

    def apply_filters(part: Part) -> tuple[Part, ...]:
        if isinstance(part, Ref):
            inner, *more = part.name.split("|")
            return (Ref("|".join([inner, *dict.fromkeys([*more, *filters])])),)
        for f in filters:
            part = _FILTERS[f](part)
        return sloppy_parts(part, into) if SLOPPY in filters else (part,)

    rows = tuple(
        Alternative(a.weight, tuple(p for part in a.parts for p in apply_filters(part) if p != "")) for a in plain[base]
    )
    for row in rows:
        for part in row.parts:
            if isinstance(part, Ref) and part.name not in into:
                _expand_filters(part.name, plain, into, (*path, name))
    into[name] = rows
