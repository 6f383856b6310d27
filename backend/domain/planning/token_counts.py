"""The number of tokens of a text, where no tokenizer is at hand.

The grammar teacher counts words, a recording without usage a token every four bytes; both are counted as they do. Of
a model and of an encoder the characters of each script (white space left out) are divided by how many of them a token
has on the mean: `python -m tests.bench.token_rates` measures it, docs/benchmarks/estimates.md has the table.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from enum import StrEnum
from unicodedata import category

BYTES_PER_TOKEN = 4
_WORD = re.compile(r" *[^ ]+| +")  # as the grammar teacher's tokens are
_MULTILINGUAL = re.compile(r"multilingual|xlm|(^|[/-])m3\b|labse", re.IGNORECASE)
_ACCENTED_SHARE = 0.005  # of the Latin chars: above it the language is not English


class Counting(StrEnum):
    """The party that counts: the grammar teacher, a recording, a large model's tokenizer, an English encoder's."""

    WORDS = "words"
    BYTES = "bytes"
    MODEL = "model"
    ENCODER = "encoder"


class Script(StrEnum):
    """Scripts with tokens of their own length. Punctuation counts as the Latin script's."""

    LATIN = "latin"
    DIGIT = "digit"
    ACCENTED = "accented"  # Latin of another language than English
    CYRILLIC = "cyrillic"
    GREEK = "greek"
    ARABIC = "arabic"
    HEBREW = "hebrew"
    INDIC = "indic"
    THAI = "thai"
    HANGUL = "hangul"
    KANA = "kana"
    HAN = "han"
    OTHER = "other"


# the first code point of each stretch, and whose it is
_STARTS: tuple[tuple[int, Script], ...] = (
    (0x0000, Script.LATIN),
    (0x0030, Script.DIGIT),
    (0x003A, Script.LATIN),
    (0x00C0, Script.ACCENTED),
    (0x0250, Script.OTHER),
    (0x0370, Script.GREEK),
    (0x0400, Script.CYRILLIC),
    (0x0530, Script.OTHER),
    (0x0590, Script.HEBREW),
    (0x0600, Script.ARABIC),
    (0x0700, Script.OTHER),
    (0x0750, Script.ARABIC),
    (0x0780, Script.OTHER),
    (0x0900, Script.INDIC),
    (0x0E00, Script.THAI),
    (0x0E80, Script.OTHER),
    (0x1100, Script.HANGUL),
    (0x1200, Script.OTHER),
    (0x1E00, Script.ACCENTED),
    (0x1F00, Script.GREEK),
    (0x2000, Script.LATIN),
    (0x20D0, Script.OTHER),
    (0x3040, Script.KANA),
    (0x3100, Script.HAN),
    (0xAC00, Script.HANGUL),
    (0xD7B0, Script.OTHER),
    (0xF900, Script.HAN),
    (0xFB00, Script.OTHER),
    (0xFB50, Script.ARABIC),
    (0xFE00, Script.HAN),
    (0xFE70, Script.ARABIC),
    (0xFF00, Script.KANA),
    (0x10000, Script.OTHER),
    (0x20000, Script.HAN),
    (0x33480, Script.OTHER),
)
_POINTS = [start for start, _ in _STARTS]
_RATES: dict[Counting, dict[Script, float]] = {
    Counting.MODEL: {
        Script.LATIN: 3.45,
        Script.DIGIT: 2.0,  # some tokenizers take digits one by one, some three at a time
        Script.ACCENTED: 3.2,
        Script.CYRILLIC: 2.9,
        Script.GREEK: 2.2,
        Script.ARABIC: 2.5,
        Script.HEBREW: 1.85,
        Script.INDIC: 2.65,
        Script.THAI: 2.7,
        Script.HANGUL: 1.7,
        Script.KANA: 2.3,
        Script.HAN: 1.9,
        Script.OTHER: 1.0,
    },
    Counting.ENCODER: {
        Script.LATIN: 3.4,
        Script.DIGIT: 2.0,
        Script.ACCENTED: 2.4,
        Script.CYRILLIC: 1.1,
        Script.GREEK: 1.15,
        Script.ARABIC: 1.1,
        Script.HEBREW: 1.1,
        Script.INDIC: 1.6,
        Script.THAI: 5.0,
        Script.HANGUL: 0.75,
        Script.KANA: 1.2,
        Script.HAN: 1.45,
        Script.OTHER: 1.0,
    },
}


def script_of(char: str) -> Script:
    """The script of a character.

    >>> [script_of(char).value for char in "aéж返の7"]
    ['latin', 'accented', 'cyrillic', 'han', 'kana', 'digit']
    """
    return _STARTS[bisect_right(_POINTS, ord(char)) - 1][1]


def count_tokens(text: str, by: Counting) -> float:
    """The tokens of a text without those that a model sets around it.

    >>> count_tokens("where is my refund", Counting.WORDS), count_tokens("where is it", Counting.BYTES)
    (4, 3)
    """
    if by is Counting.WORDS:
        return len(_WORD.findall(text))
    if by is Counting.BYTES:
        return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)
    chars = Counter(script_of(char) for char in text if not char.isspace())
    accented = chars[Script.ACCENTED]
    if accented > _ACCENTED_SHARE * (accented + chars[Script.LATIN]):
        chars[Script.ACCENTED] += chars.pop(Script.LATIN, 0)
    return sum(n / _RATES[by][script] for script, n in chars.items())


def alphabetic_part(text: str) -> str:
    """The text with blanks in the place of all that is no letter: digits, marks and signs say nothing of a language.

    >>> alphabetic_part("Où est #4711?")
    'Où est       '
    """
    return "".join(char if char.isalpha() or category(char).startswith("M") else " " for char in text)


def counting_of_base(name: str | None) -> Counting:
    """The way in which an encoder counts, by its name: one of many languages as a large model does. None: the default.

    >>> counting_of_base("intfloat/multilingual-e5-small").value, counting_of_base(None).value
    ('model', 'encoder')
    """
    return Counting.MODEL if name is not None and _MULTILINGUAL.search(name) else Counting.ENCODER
