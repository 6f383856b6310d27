"""The declared set of converters: from the words of an input to the value of a field.

Which of them a field needs is learned (`learning`): those that reproduce the pairs. Each is a total function: what it
cannot read is None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from backend.domain.extraction.dates import read_date, read_time
from backend.domain.extraction.numbers import read_number
from backend.domain.unicode_forms import unicode_form

MAX_SURFACE = 2_000  # characters of what is convert


class Converter(StrEnum):
    AS_IS = "as_is"
    ONE_LINE = "one_line"  # white space becomes one space
    LOWER = "lower"
    UPPER = "upper"
    TITLE = "title"
    SENTENCE = "sentence"  # its first letter a capital
    DIGITS = "digits"  # the digits alone
    CODE = "code"  # letters and digits alone
    CODE_UPPER = "code_upper"
    CHOICE = "choice"  # the value of the schema that is spelt alike
    DATE_DAY_FIRST = "date_day_first"
    DATE_MONTH_FIRST = "date_month_first"
    TIME = "time"
    TIME_SECONDS = "time_seconds"
    NUMBER = "number"
    NUMBER_COMMA = "number_comma"
    HUNDREDTHS = "hundredths"  # an amount in cents
    HUNDREDTHS_COMMA = "hundredths_comma"
    PERCENT = "percent"  # as a share of one


TEXT_CONVERTERS = (
    Converter.AS_IS,
    Converter.ONE_LINE,
    Converter.LOWER,
    Converter.UPPER,
    Converter.TITLE,
    Converter.SENTENCE,
    Converter.DIGITS,
    Converter.CODE,
    Converter.CODE_UPPER,
    Converter.DATE_DAY_FIRST,
    Converter.DATE_MONTH_FIRST,
    Converter.TIME,
    Converter.TIME_SECONDS,
)
NUMBER_CONVERTERS = (
    Converter.NUMBER,
    Converter.NUMBER_COMMA,
    Converter.HUNDREDTHS,
    Converter.HUNDREDTHS_COMMA,
    Converter.PERCENT,
)
DATES = frozenset({Converter.DATE_DAY_FIRST, Converter.DATE_MONTH_FIRST})
TIMES = frozenset({Converter.TIME, Converter.TIME_SECONDS})
_COMMAS = frozenset({Converter.NUMBER_COMMA, Converter.HUNDREDTHS_COMMA})
_TIMES_A_HUNDRED = frozenset({Converter.HUNDREDTHS, Converter.HUNDREDTHS_COMMA})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A converter with what it has to know: the `year` of dates without one (0: none is known), and the `choices` that
    a value is one of."""

    converter: Converter
    year: int = 0
    choices: tuple[str, ...] = ()

    def __call__(self, surface: str) -> Any:
        """The value, or None."""
        if len(surface) > MAX_SURFACE:
            return None
        text = unicode_form("NFC", surface).strip()
        if not text:
            return None
        match self.converter:
            case Converter.CHOICE:
                return _choice_of(self.choices).get(fold(text))
            case Converter.DATE_DAY_FIRST | Converter.DATE_MONTH_FIRST:
                is_day_first = self.converter is Converter.DATE_DAY_FIRST
                return read_date(text, is_day_first=is_day_first, year=self.year)
            case Converter.TIME | Converter.TIME_SECONDS:
                return read_time(text, has_seconds=self.converter is Converter.TIME_SECONDS)
        if self.converter in NUMBER_CONVERTERS:
            return self._number(text)
        return _SPELLINGS[self.converter](text) or None

    def _number(self, text: str) -> int | float | None:
        number = read_number(text, is_comma=self.converter in _COMMAS)
        if number is None:
            return None
        if self.converter in _TIMES_A_HUNDRED:
            number *= 100
        elif self.converter is Converter.PERCENT:
            number /= 100
        return int(number) if number == number.to_integral_value() else float(number)

    def to_json(self) -> dict[str, Any]:
        more: dict[str, Any] = {"year": self.year} if self.year else {}
        if self.choices:
            more["choices"] = list(self.choices)
        return {"converter": self.converter.value} | more

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            converter=Converter(value["converter"]),
            year=value.get("year", 0),
            choices=tuple(value.get("choices", ())),
        )


def fold(text: str) -> str:
    """The letters and digits of a text, folded: what two spellings of a value have in common."""
    return "".join(char for char in text.casefold() if char.isalnum())


def one_line(text: str) -> str:
    return " ".join(text.split())


def _sentence(text: str) -> str:
    line = one_line(text)
    return line[:1].upper() + line[1:]


_SPELLINGS: Mapping[Converter, Callable[[str], str]] = {
    Converter.AS_IS: lambda text: text,
    Converter.ONE_LINE: one_line,
    Converter.LOWER: lambda text: one_line(text).lower(),
    Converter.UPPER: lambda text: one_line(text).upper(),
    Converter.TITLE: lambda text: " ".join(word[:1].upper() + word[1:].lower() for word in text.split()),
    Converter.SENTENCE: _sentence,
    Converter.DIGITS: lambda text: "".join(char for char in text if char.isdecimal()),
    Converter.CODE: lambda text: "".join(char for char in text if char.isalnum()),
    Converter.CODE_UPPER: lambda text: "".join(char for char in text if char.isalnum()).upper(),
}
_CHOICES: dict[tuple[str, ...], dict[str, str]] = {}


def _choice_of(choices: Sequence[str]) -> dict[str, str]:
    """The choices by their code; where two have one code, neither."""
    key = tuple(choices)
    if key not in _CHOICES:
        if len(_CHOICES) > 64:
            _CHOICES.clear()
        by_code: dict[str, str] = {}
        for choice in choices:
            by_code[fold(choice)] = "" if fold(choice) in by_code else choice
        _CHOICES[key] = {code: choice for code, choice in by_code.items() if choice and code}
    return _CHOICES[key]


def convert(conversions: Sequence[Conversion], surface: str, accepts: Callable[[Any], bool]) -> Any:
    """The value by the first of the conversions whose value is accepted; None where none is."""
    for conversion in conversions:
        value = conversion(surface)
        if value is not None and accepts(value):
            return value
    return None
