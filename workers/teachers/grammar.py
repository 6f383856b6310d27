"""Reads and checks a grammar file.

YAML:  rules:  {name: ["text with {other} rules", [3, "an alternative of weight 3"]]}
       slices: {name: {start: "{rule}", label: refund_request}}
`{name|lower}`, `{name|bare}` (no punctuation), `{name|upper}` change every letter below: homomorphisms, so the
result is still such a grammar.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from workers.teachers.pcfg import Alternative, Grammar, GrammarSlice, Part, Ref

DEFAULT_GRAMMAR = Path(__file__).parent / "grammars" / "support.yaml"
_PART = re.compile(r"\{([a-z0-9_]+(?:\|[a-z]+)*)\}|([^{}]+)")
_FILTERS: Mapping[str, Callable[[str], str]] = {
    "lower": str.lower,
    "upper": str.upper,
    "bare": lambda text: re.sub(r"[.,!?';:]", "", text),
}


class BadGrammar(ValueError):
    """The file breaks a rule of the format; the message names the place."""


def load_grammar(data: bytes) -> Grammar:
    """Read and check a grammar file; raises BadGrammar."""
    try:
        document = yaml.safe_load(data)
    except yaml.YAMLError as wrong:
        raise BadGrammar("not valid YAML") from wrong
    if not isinstance(document, dict) or not isinstance(document.get("rules"), dict):
        raise BadGrammar("a grammar is a mapping with `rules` and `slices`")
    return build_grammar(document["rules"], document.get("slices") or {}, revision=hashlib.sha256(data).hexdigest())


def build_grammar(rules: Mapping[str, object], slices: Mapping[str, object], *, revision: str) -> Grammar:
    """A checked grammar from plain values: the `rules` and `slices` of the YAML form."""
    plain = {str(name): _alternatives(str(name), rows) for name, rows in rules.items()}
    found: dict[str, GrammarSlice] = {}
    for name, row in slices.items():
        if not isinstance(row, dict) or not isinstance(row.get("start"), str) or not isinstance(row.get("label"), str):
            raise BadGrammar(f"slice {name}: needs `start` and `label`")
        plain[f"slice:{name}"] = _alternatives(str(name), [row["start"]])
        found[str(name)] = GrammarSlice(name=str(name), start=f"slice:{name}", label=row["label"])
    expanded: dict[str, tuple[Alternative, ...]] = {}
    for name in plain:
        _expand_filters(name, plain, expanded, ())
    return Grammar(rules=expanded, slices=found, revision=revision)


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

    def changed(part: Part) -> Part:
        if isinstance(part, Ref):
            inner, *more = part.name.split("|")
            return Ref("|".join([inner, *dict.fromkeys([*more, *filters])]))
        for f in filters:
            part = _FILTERS[f](part)
        return part

    rows = tuple(Alternative(a.weight, tuple(p for p in map(changed, a.parts) if p != "")) for a in plain[base])
    for row in rows:
        for part in row.parts:
            if isinstance(part, Ref):
                _expand_filters(part.name, plain, into, (*path, name))
    into[name] = rows
