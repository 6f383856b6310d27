"""Numbers as people write them: digits with separators of either locale, and the words for small ones."""

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

Span = tuple[int, int]

_MAX_DIGITS = 15  # a float keeps them all
_SEPARATED = re.compile(r"\d+(?:[.,'’ \u00a0\u202f]\d+)*")
_WORD = re.compile(r"[^\W\d_]+")
_SPACES = re.compile("['’ \u00a0\u202f]")
_SCALES = {"k": 1_000, "m": 1_000_000, "mio": 1_000_000, "bn": 1_000_000_000}
_WORDS = {
    word: number
    for number, words in {
        0: "zero null cero zéro",
        1: "one once single ein eine einen einem einer eins un une uno una",
        2: "two twice both pair couple zwei beide deux dos due",
        3: "three thrice drei trois tres tre",
        4: "four vier quatre cuatro quattro",
        5: "five fünf cinq cinco cinque",
        6: "six sechs seis sei",
        7: "seven sieben sept siete sette",
        8: "eight acht huit ocho otto",
        9: "nine neun neuf nueve nove",
        10: "ten zehn dix diez dieci",
        11: "eleven elf onze once undici",
        12: "twelve dozen zwölf dutzend douze douzaine doce docena dodici",
        13: "thirteen dreizehn treize trece",
        14: "fourteen vierzehn quatorze catorce",
        15: "fifteen fünfzehn quinze quince",
        16: "sixteen sechzehn seize",
        17: "seventeen siebzehn",
        18: "eighteen achtzehn",
        19: "nineteen neunzehn",
        20: "twenty zwanzig vingt veinte venti",
        30: "thirty dreißig dreissig trente treinta trenta",
        40: "forty vierzig quarante cuarenta quaranta",
        50: "fifty fünfzig cinquante cincuenta cinquanta",
        60: "sixty sechzig soixante sesenta sessanta",
        70: "seventy siebzig setenta settanta",
        80: "eighty achtzig ochenta ottanta",
        90: "ninety neunzig noventa novanta",
        100: "hundred hundert cent cien cento",
        1000: "thousand tausend mille mil",
    }.items()
    for word in words.split()
}


def number_spans(text: str) -> Iterator[Span]:
    """The places of the numbers in a text, of digits and of words, a sign with its digits."""
    for match in _SEPARATED.finditer(text):
        start = match.start()
        is_signed = start > 0 and text[start - 1] in "-−+" and (start == 1 or not text[start - 2].isalnum())
        yield start - is_signed, match.end()
        if " " in match[0] or "," in match[0]:  # also what separates two numbers
            at = start
            for part in re.split(r"[ ,]", match[0]):
                yield at, at + len(part)
                at += len(part) + 1
    for match in _WORD.finditer(text):
        if match[0].casefold() in _WORDS:
            yield match.span()


def read_number(surface: str, *, is_comma: bool) -> Decimal | None:
    """The one number in a short text; None where there is none, or two. Of a single separator before three digits,
    `is_comma` says that a comma parts decimals and a point thousands; else the writing tells.

    >>> [str(read_number(text, is_comma=False)) for text in ("$1,234.50", "1.234,50", "1,234", "two", "12k")]
    ['1234.50', '1234.50', '1234', '2', '12000']
    >>> str(read_number("1.234", is_comma=True)), read_number("2 of 3", is_comma=False)
    ('1234', None)
    """
    matches = list(_SEPARATED.finditer(surface))
    if not matches:
        words = [_WORDS[word] for word in map(str.casefold, _WORD.findall(surface)) if word in _WORDS]
        return _of_words(words)
    if len(matches) > 1:
        return None
    digits, start, end = matches[0][0], *matches[0].span()
    number = _plain(digits, is_comma=is_comma)
    if number is None:
        return None
    unit = _WORD.match(surface, end)
    scale = _SCALES.get(unit[0].casefold(), 1) if unit else 1
    is_negative = start > 0 and surface[start - 1] in "-−"
    return -number * scale if is_negative else number * scale


def _plain(digits: str, *, is_comma: bool) -> Decimal | None:
    kept = _SPACES.sub("", digits)
    if sum(char.isdecimal() for char in kept) > _MAX_DIGITS:
        return None
    kinds = [char for char in kept if char in ".,"]
    point = ""
    if len(set(kinds)) == 2:
        point = kinds[-1] if kinds.count(kinds[-1]) == 1 else ""
    elif len(kinds) == 1:
        is_thousands = len(kept) - kept.index(kinds[0]) == 4 and kinds[0] == ("." if is_comma else ",")
        point = "" if is_thousands else kinds[0]
    whole = "".join("." if char == point else char for char in kept if char == point or char not in ".,")
    try:
        return Decimal(whole)
    except InvalidOperation:
        return None


def _of_words(numbers: list[int]) -> Decimal | None:
    """Twenty one, two hundred, two dozen; None for what is no one number."""
    if len(numbers) == 2:
        first, second = numbers
        if first >= 20 and first % 10 == 0 and first < 100 and second < 10:
            return Decimal(first + second)
        if second in (12, 100, 1000) and 0 < first < 100:
            return Decimal(first * second)
        return None
    return Decimal(numbers[0]) if len(numbers) == 1 else None
