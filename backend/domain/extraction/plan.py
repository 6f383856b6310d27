"""The extraction plan of a json task: by each leaf of its schema, how a value comes about, and what of the pairs that
reproduces. It is learned from pairs (`learning`), trained towards (`alignment`), read back (`assembling`), and shipped
in the artifact as extraction.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from backend.domain.extraction.converters import Conversion
from backend.domain.extraction.sentences import Sentences

FORMAT = "kolm.extraction/1"
PPM = 1_000_000


class Way(StrEnum):
    """The way in which a leaf's values come about."""

    COPIED = "copied"  # of one span of the input, through converters
    CLOSED = "closed"  # one of a closed set, absence among them
    MANY = "many"  # of a list: each of a closed set is there or not
    EACH = "each"  # of a list of objects: each element has one of a closed set, absence among them
    CONSTANT = "constant"
    ABSENT = "absent"


class Sharing(StrEnum):
    """The element of a list whose value another one has too, which has no span of its own."""

    EITHER = "either"  # the last before it that has one, or else the next
    AFTER = "after"  # the next that has one
    BEFORE = "before"  # the last that has one
    NEAREST = "nearest"
    ONLY = "only"  # the one that has a value, where no second has


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRule:
    """`conversions` are tried in order; `separator` joins the values of several spans into one text (None: one span).
    `choices` are the classes of a closed set, null for absence; `bars` has for each of them the numbers of the leaves
    that no pair of this class has (() where none is known). `default` is what a value is where no span is read
    (`has_default`; null: the leaf is left out, or written as null with `writes_null`). `is_always`: every pair has a
    span of it. `shared`, in a list of objects: an element without a span of its own has the value of another (None: it
    has none). `fallback` is the commonest value, for a leaf that its schema asks for. `n` values stand in the pairs,
    `n_right` of them come out right."""

    path: str
    way: Way
    conversions: tuple[Conversion, ...] = ()
    separator: str | None = None
    choices: tuple[Any, ...] = ()
    bars: tuple[tuple[int, ...], ...] = ()
    default: Any = None
    has_default: bool = False
    writes_null: bool = False
    is_always: bool = False
    shared: Sharing | None = None
    fallback: Any = None
    n: int = 0
    n_right: int = 0

    @property
    def list_path(self) -> str:
        """The path of the elements of the list of objects that the leaf lies in; "" where it lies in none."""
        before, step, _ = self.path.partition("/*/")
        return f"{before}/*" if step else ""

    def to_json(self) -> dict[str, Any]:
        shared = {"shared": self.shared.value} if self.shared else {}
        return shared | {
            "path": self.path,
            "way": self.way.value,
            "conversions": [one.to_json() for one in self.conversions],
            "separator": self.separator,
            "choices": list(self.choices),
            "bars": [list(numbers) for numbers in self.bars],
            "default": self.default,
            "has_default": self.has_default,
            "writes_null": self.writes_null,
            "is_always": self.is_always,
            "fallback": self.fallback,
            "n": self.n,
            "n_right": self.n_right,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        conversions = tuple(map(Conversion.from_json, value["conversions"]))
        made = {"way": Way(value["way"]), "conversions": conversions, "choices": tuple(value["choices"])}
        kept = {key: item for key, item in value.items() if key not in ("shared", "is_shared")}
        # plans of 28 November 2026 know one way of sharing
        way = value.get("shared", Sharing.EITHER if value.get("is_shared") else None)
        shared = {"shared": None if way is None else Sharing(way)}
        return cls(**kept | made | shared | {"bars": tuple(map(tuple, value["bars"]))})


NOT_READ = "its values do not stand in the inputs, and are no closed set"
NO_ANCHOR = "no other value of its element stands in the inputs, so that nothing says where the element is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A leaf whose values an extraction does not reproduce, with `n_wrong` of its `n`; `examples` are a few of them as
    they stand in the pairs."""

    path: str
    why: str
    n: int = 0
    n_wrong: int = 0
    examples: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"examples": list(self.examples)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**dict(value) | {"examples": tuple(value["examples"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionPlan:
    """`rules` in the order of the schema's leaves. `layers` are numbers of rules whose spans never overlap: each layer
    is one tagging of the input. `fallback` is the whole answer where nothing else fits the schema. `n_values` leaf
    values stand in the `n_pairs` pairs, `n_right` of them come out right. `whole_words`: no value begins or ends within
    a word. `sentences` are a text task's, whose schema the answer then has (None: of a json task)."""

    rules: tuple[LeafRule, ...]
    layers: tuple[tuple[int, ...], ...]
    fallback: Any
    n_pairs: int
    n_values: int
    n_right: int
    whole_words: bool = False
    refusals: tuple[Refusal, ...] = ()
    sentences: Sentences | None = None

    @property
    def share_ppm(self) -> int:
        """The share of the leaf values that come out right; of pairs without a value, all."""
        return self.n_right * PPM // self.n_values if self.n_values else PPM

    @property
    def copied(self) -> tuple[int, ...]:
        return tuple(i for i, rule in enumerate(self.rules) if rule.way is Way.COPIED)

    def class_rules(self) -> tuple[int, ...]:
        """The numbers of the rules that have a head of classes."""
        return tuple(i for i, rule in enumerate(self.rules) if rule.way in (Way.CLOSED, Way.MANY))

    def element_rules(self) -> tuple[int, ...]:
        """The numbers of the rules that have a head of classes at the token that opens an element."""
        return tuple(i for i, rule in enumerate(self.rules) if rule.way is Way.EACH)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "rules": [rule.to_json() for rule in self.rules],
            "layers": [list(layer) for layer in self.layers],
            "fallback": self.fallback,
            "n_pairs": self.n_pairs,
            "n_values": self.n_values,
            "n_right": self.n_right,
            "whole_words": self.whole_words,
            "refusals": [one.to_json() for one in self.refusals],
        } | ({} if self.sentences is None else {"sentences": self.sentences.to_json()})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises ValueError for what is no plan."""
        try:
            fields = {key: item for key, item in value.items() if key != "format"}
            if value["format"] != FORMAT:
                raise ValueError(f"a plan of the format {value['format']!r}")
            rules = tuple(map(LeafRule.from_json, fields.pop("rules")))
            layers = tuple(tuple(layer) for layer in fields.pop("layers"))
            refusals = tuple(map(Refusal.from_json, fields.pop("refusals")))
            if "sentences" in fields:
                fields["sentences"] = Sentences.from_json(fields["sentences"])
            plan = cls(rules=rules, layers=layers, refusals=refusals, **fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no extraction plan: {error}") from error
        if sorted(i for layer in plan.layers for i in layer) != list(plan.copied):
            raise ValueError("no extraction plan: its layers are not its copied leaves")
        return plan
