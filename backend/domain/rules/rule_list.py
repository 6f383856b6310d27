"""rules.json: what a rule is, how a list is written. Hostile until `reading.read_rules` took it.

A condition is a text: words of `wording` in a row ("top up"; `#` stands for any word of digits, `^` and `$` for the
beginning and the end of the text), or the name of a pattern of `text_patterns` ("<email>"), or `<known>`: every word
that no field took is one of the list's `known` words. A condition of a json task may also be a `FieldIs`.

    {"format": "kolm-rules/1", "task": "label", "rules": [
      {"when": ["top up", "limit"], "unless": ["failed"], "answer": "top_up_limits",
       "seen": 41, "support": 23, "right": 23, "low_ppm": 877855}]}

`seen`: how often it answered where it was found; `support`, `right`: how often it answered, and rightly, on held-out
pairs; `low_ppm`: the lower bound of that precision (one-sided, Clopper and Pearson).

For a json task `fields` are the leaves of the answer in the order of its spelling, and a rule gives one of them: a
`value`, a `copy` of a place of the text, or `absent`. The rules of a field stand together; the first that applies gives
it. The list answers when every field was given, and says nothing otherwise; its own `low_ppm` is the lower bound of how
often such an answer is right as a whole, absent from lists of releases before it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.errors import OurError

FORMAT = "kolm-rules/1"


class InvalidRules(OurError):
    code = "invalid_rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldIs:
    """An earlier field was given this value (None: null, or absent)."""

    field: int
    value: str | int | bool | None

    def to_json(self) -> dict[str, Any]:
        return {"field": self.field, "is": self.value}


Condition = str | FieldIs


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A place of the text: the only match of a pattern, or the only phrase of a vocabulary, or the words between two
    phrases; `after` is a phrase that stands right before it. Where there is no such place, or there are several, the
    rule does not apply."""

    pattern: str = ""
    vocabulary: int = -1
    between: tuple[str, str] | None = None
    after: str = ""
    as_number: bool = False

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"between": list(self.between)} if self.between is not None else {}
        made |= {"pattern": self.pattern} if self.pattern else {}
        made |= {"vocabulary": self.vocabulary} if self.vocabulary >= 0 else {}
        made |= {"after": self.after} if self.after else {}
        return made | ({"as_number": True} if self.as_number else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    seen: int = 0
    support: int = 0
    right: int = 0
    low_ppm: int = 0

    def to_json(self) -> dict[str, int]:
        return {"seen": self.seen, "support": self.support, "right": self.right, "low_ppm": self.low_ppm}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRule:
    when: tuple[str, ...]
    unless: tuple[str, ...]
    answer: str
    evidence: Evidence

    def to_json(self) -> dict[str, Any]:
        parts = {"when": list(self.when), "unless": list(self.unless), "answer": self.answer}
        return parts | self.evidence.to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRule:
    """Gives `field` (an index of `RuleList.fields`) a `copy`, or else `value`; `is_absent`: it is not in the answer."""

    field: int
    when: tuple[Condition, ...]
    unless: tuple[Condition, ...]
    value: str | int | bool | None
    copy: Copy | None
    is_absent: bool
    evidence: Evidence

    def to_json(self) -> dict[str, Any]:
        def as_json(conditions: tuple[Condition, ...]) -> list[Any]:
            return [c if isinstance(c, str) else c.to_json() for c in conditions]

        outcome: dict[str, Any] = {"value": self.value}
        if self.is_absent:
            outcome = {"absent": True}
        elif self.copy is not None:
            outcome = {"copy": self.copy.to_json()}
        parts = {"field": self.field, "when": as_json(self.when), "unless": as_json(self.unless)}
        return parts | outcome | self.evidence.to_json()


Rule = LabelRule | FieldRule


@dataclass(frozen=True, kw_only=True)
class RuleList:
    """The rules in order; the first that applies answers (or gives its field). `fields`, `vocabularies`, `known` and
    `low_ppm` are a json task's."""

    task: str  # label | json
    rules: tuple[Rule, ...]
    fields: tuple[tuple[str, ...], ...] = ()
    vocabularies: tuple[tuple[str, ...], ...] = ()
    known: tuple[str, ...] = ()
    low_ppm: int = 0  # the lower bound of the whole answers' precision on held-out pairs; 0: not measured

    @cached_property
    def sha256(self) -> str:
        """The sha256 of `to_bytes`."""
        return sha256_hex(self.to_bytes())

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"format": FORMAT, "task": self.task, "rules": [rule.to_json() for rule in self.rules]}
        if self.task == "label":
            return value
        lists = {"fields": self.fields, "vocabularies": self.vocabularies}
        value |= {name: [list(item) for item in items] for name, items in lists.items()} | {"known": [*self.known]}
        return value | ({"low_ppm": self.low_ppm} if self.low_ppm else {})

    def to_bytes(self) -> bytes:
        """The member rules.json: canonical JSON, so that equal lists have equal bytes."""
        return canonical_json(self.to_json())

    @property
    def n(self) -> int:
        return len(self.rules)


EMPTY = RuleList(task="label", rules=())
