"""The spans and classes that are read of an input, and the fields that an answer has from them."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRead:
    """The class of a closed set; of a MANY rule, each value that is there has one."""

    rule: int
    value: Any
    confidence: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRead:
    """A span of the input that was read as a value of the rule `rule`, with `confidence` in [0, 1]. `opens`: it begins
    a new element of its list, of which `classes` are what closed sets say. `is_spare`: it is the best of a leaf that
    has no other, and counts only where the leaf is always there."""

    rule: int
    start: int
    end: int
    confidence: float = 1.0
    opens: bool = False
    is_spare: bool = False
    classes: tuple[ClassRead, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRead:
    """A field of an answer: the number of its rule, its path with the numbers of list elements, its value, how sure it
    is, and the span of the input that it came from (code points; None where it was not copied)."""

    rule: int
    path: str
    value: Any
    confidence: float
    start: int | None = None
    end: int | None = None
