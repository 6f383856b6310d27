"""Bytes of a text file as text. Excel saves UTF-8 with a mark, UTF-16 as "Unicode text", and the code page of its
country as plain CSV; none of them says which it is."""

import codecs
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEncoding:
    """`codec` is Python's name; `mark` the byte order mark's length; `note` says what was guessed, or is empty."""

    codec: str
    mark: int = 0
    note: str = ""


def find_encoding(chunks: Iterable[bytes]) -> TextEncoding:
    """The encoding of a file, by all of it. UTF-8 where it can be; otherwise Windows-1252, in which any bytes but five
    are text, so that it is a guess and says so.

    >>> find_encoding(["café".encode("cp1252")]).codec
    'cp1252'
    """
    source = iter(chunks)
    head = next(source, b"")
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return TextEncoding(codec=codec, mark=len(mark))
    if (bare := _utf16_without_mark(head[:_SAMPLE])) is not None:
        return TextEncoding(codec=bare, note="read as UTF-16")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in itertools.chain([head], source):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return TextEncoding(codec="cp1252", note="read as Windows-1252, since it is not UTF-8: look at the accents")
    return TextEncoding(codec="utf-8")


def _utf16_without_mark(head: bytes) -> str | None:
    """Every second byte of western text in UTF-16 is 0, and no byte of other texts is."""
    pairs = len(head) // 2
    if pairs < 4:
        return None
    if head[1 : pairs * 2 : 2].count(0) > pairs * 0.7:
        return "utf-16-le"
    if head[0 : pairs * 2 : 2].count(0) > pairs * 0.7:
        return "utf-16-be"
    return None
