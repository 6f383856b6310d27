r"""A pattern means to us what it means to Python's `re`, or it is refused in a sentence that says where and why."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import example, given

from backend.domain.patterns.alphabets import alphabet_of
from backend.domain.patterns.characters import UnsafePattern
from backend.domain.patterns.code_points import cases, kinds, text_of
from backend.domain.patterns.matching import compile_pattern, occurs_in
from backend.domain.patterns.syntax import read_pattern
from tests.pattern_strategies import meaningful, short_texts
from tests.profiles import times


def python_finds(pattern: str, text: str) -> bool | None:
    """None for what Python refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sets that may mean something else one day
        try:
            return re.compile(pattern).search(text) is not None
        except (re.error, ValueError, OverflowError):
            return None


def ours(pattern: str, text: str) -> bool | None:
    """None for the two that are refused of what is generated here, and where Python loses a letter: of (?i)a|𐐀 it makes
    a set, and in a set it finds no capital beyond U+FFFF."""
    try:
        found = occurs_in(pattern, text)
        return None if "𐐀" in pattern and "|" in pattern and "i" in pattern else found
    except UnsafePattern as fault:
        if "stands inside and outside of" not in str(fault):
            raise
        return None


@times(4)
@given(meaningful, short_texts)
@example("$", "\n\n")
@example("(?m)^$", "a\n")
@example(r"a$\n\Z", "a\n")
@example("x{,2}y", "x{,2}y")
@example("(?i)[^\u0131𐐀-𐐀]", "𐐨")
@example("(?i)ſ", "S")
@example("(?i)[k-l]", "\u212a")
@example("(?i)i", "\u0130")
@example("(?i)\u0131", "I")
@example("[a--]|[&&x]|[[]", "[")
@example(r"\ud800", "\ud800")
@example("(?x) a # b\n  +", "aa")
@example("(?x)a#\\\nb\nc", "ac")  # an escaped line end goes on with the comment
@example("(?x)a#\\", "a")
@example("(?#\\)[)]x", "]x")
@example("a(?#\\)[)]x", "a]x")
@example("(?#a\\)", "a")
def test_a_pattern_finds_what_pythons_re_finds(pattern: str, text: str) -> None:
    expected = python_finds(pattern, text)
    if expected is None:
        with pytest.raises(UnsafePattern):
            occurs_in(pattern, text)
        return
    if (found := ours(pattern, text)) is None:
        return
    if text or r"\B" not in pattern:  # \B is found in the empty text since Python 3.14, and by us
        assert found == expected


@given(meaningful, short_texts)
@example(r"\bé\b$", "a é\n")
@example("(?m)^a$", "b\na\nc")
@example(r"\B一\B", "a一b")
def test_symbols_of_two_bytes_mean_the_same(pattern: str, text: str) -> None:
    wide = f"{pattern}|{''.join(map(chr, range(0x4E00, 0x4E00 + 250)))}"
    expected = python_finds(wide, text)
    if expected is None or (found := ours(wide, text)) is None:
        return
    assert compile_pattern(wide).alphabet.width == 2
    if text or r"\B" not in pattern:
        assert found == expected


def test_a_capital_beyond_the_first_65536_is_taken_among_alternatives_too() -> None:
    assert not re.search("(?i)a|𐐀", "𐐨")  # a fault of Python's, and not of what was meant
    assert occurs_in("(?i)a|𐐀", "𐐨")
    assert occurs_in("(?i)𐐀", "𐐨")


@pytest.mark.parametrize(
    "source",
    [
        *(r"\w", r"\d", r"\s", r"(?i)\W", ".", "(?s).", "(?i)[a-z]", "(?i)[^k]", "(?i)ß", "(?ai)[^s]", r"(?a)\w"),
        *("(?i)[\u0100-\u024f]", "(?i)[\u0370-\u03ff\u1f00-\u1fff]", "(?i)[𐐀-𐐧]", "(?i)[\ufb05\u0390]"),
        *(r"(?i)[\dſ-ƀ]", r"(?i)[^\w\u0130]"),
    ],
)
def test_every_code_point_is_taken_as_python_takes_it(source: str) -> None:
    everything = text_of(np.arange(0x110000))
    alphabet = alphabet_of(read_pattern(source))
    (own,) = alphabet.classes.values()
    symbols = np.frombuffer(alphabet.encode(everything), np.uint8)
    taken = np.array([re.fullmatch(own.encode(), bytes([byte])) is not None for byte in range(256)])
    expected = np.zeros(0x110000, np.bool_)
    expected[[ord(char) for char in re.compile(source, re.DOTALL * (source == "(?s).")).findall(everything)]] = True
    assert np.array_equal(taken[symbols], expected)


def test_letters_are_taken_for_none_but_their_mates_and_have_their_kind() -> None:
    """What the cells of an alphabet stand on, with the running Python's tables."""
    letters = cases()
    text = text_of(letters.codes)
    for code, low, high in zip(letters.codes, letters.lowest, letters.highest, strict=True):
        mates = [ord(mate) for mate in re.findall(f"(?i)\\U{code:08x}", text)]
        assert low <= min(mates) <= max(mates) <= high
    lower = np.array([ord(char.lower()) if len(char.lower()) == 1 else ord(char) for char in text])
    assert np.array_equal(kinds().of(letters.codes), kinds().of(lower))


@pytest.mark.parametrize(
    ("pattern", "place", "words"),
    [
        ("a(?=b)", 2, "(?= looks ahead"),
        ("a(?!b)", 2, "(?! looks ahead"),
        ("(?<=b)a", 1, "(?<= looks behind"),
        ("(?<!b)a", 1, "(?<! looks behind"),
        (r"(.)\1", 4, "write the alternatives out"),
        ("(?P<a>x)(?P=a)", 9, "write the alternatives out"),
        ("(x)(?(1)b|c)", 4, "whether a group matched"),
        ("(?>a)", 1, "write (?:...)"),
        ("(?<name>a)", 1, "write (?P<name>...)"),
        ("a*+", 2, "leave the last + out"),
        ("a{2}+", 2, "leave the last + out"),
        ("ab{1001}", 3, "more rounds than the 1,000 characters"),
        ("a{99999999999}", 2, "take a smaller count"),
        ("(?:a{50}){50}", 5, "2,500 rounds"),
        ("a{3,2}", 2, "turn them round"),
        ("a**", 3, "repeats a repeat"),
        ("*a", 1, "nothing to repeat"),
        ("^*", 2, "nothing to repeat"),
        ("(a", 1, "has no ) after it"),
        ("a)", 2, "without a ("),
        ("[a", 1, "has no ] after it"),
        ("[b-a]", 3, "from no character to another"),
        (r"[\d-z]", 4, "from no character to another"),
        ("a\\", 2, "is not known"),
        (r"\y", 1, "is not known"),
        (r"\x4", 1, "hexadecimal"),
        (r"\N{NO SUCH}", 1, "name of a character"),
        ("a(?i)b", 2, "come first of all"),
        ("(?L)a", 1, "is for bytes"),
        ("(?au)a", 1, "exclude each other"),
        ("(?P<1>a)", 1, "name of the group"),
        ("(?P<a>a)(?P<a>b)", 9, "name each once"),
        ("(?#a", 1, "has no end"),
        ("(?#a\\)", 1, "has no end"),
        ("(?x)a#b\\", 8, "ends in a backslash"),
        ("(" * 51 + ")" * 51, 51, "50 deep"),
        ("(?m:^)a$", 8, "write \\Z"),
        (r"(?a)\b(?u:\b)", 11, "use one of them"),
    ],
)
def test_what_cannot_be_matched_is_refused_where_it_stands(pattern: str, place: int, words: str) -> None:
    with pytest.raises(UnsafePattern) as caught:
        occurs_in(pattern, "a")
    assert str(caught.value).startswith(f"the pattern, at character {place}: ")
    assert words in str(caught.value)
