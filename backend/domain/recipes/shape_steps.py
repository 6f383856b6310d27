"""One byte's step from shape to shape: the machine behind `shapes` (docs/recipes.md writes it down).

Text and code keep the depth of brackets, the column where the line begins and whether a quotation is open. A line that
begins with a bracket at depth 0 is read as JSON until it breaks JSON's grammar; there the open containers, the place
between two of its signs and the ordinal of the member are kept.
"""

from typing import NamedTuple

UNITS = 4  # how many of the last units are kept
MAX_ORDINAL = 63
MAX_LEVELS = 24
MAX_INDENT = 40
MAX_DEPTH = 9
MAX_KEY_BYTES = 40
NUM, STR, ID, WS, NL = "NUM", "STR", "ID", "WS", "NL"
KEYWORDS = frozenset(
    b"and as assert async await break class continue def del elif else except false False finally for from global if "
    b"import in is lambda let new none None nonlocal not null or pass raise return true True try var while with yield "
    b"const function public static void".split()
)
_BEGINNINGS = frozenset(word[:n] for word in KEYWORDS for n in range(1, len(word) + 1))
_DIGITS, _WORD_BYTES = frozenset(b"0123456789"), frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_BLANKS, _OPENING, _CLOSING = frozenset(range(33)) - {10}, frozenset(b"([{"), frozenset(b")]}")
_NEWLINE, _BACKSLASH, _QUOTE, _BRACE, _BRACKET = 10, ord("\\"), ord('"'), ord("{"), ord("[")
_QUOTES = frozenset(b"\"'`")


class Level(NamedTuple):
    """An open container of JSON. `key`: an object's last key that is whole; "" for none, or one that is too long."""

    is_object: bool
    ordinal: int = 0
    key: str = ""


class Shape(NamedTuple):
    """`units`: the last ones, the last of them may go on. `word`: what has come of a word that may be a keyword.
    `outside`: the units before the string that is open. `levels` () and `place` "": not JSON."""

    units: tuple[str, ...] = ()
    word: bytes = b""
    quote: int = 0
    is_escaped: bool = False
    outside: tuple[str, ...] = ()
    depth: int = 0
    indent: int = 0
    is_line_start: bool = True
    levels: tuple[Level, ...] = ()
    place: str = ""
    key: bytes = b""


def step(shape: Shape, byte: int) -> Shape:
    if shape.place:
        return _in_json(shape, byte)
    if byte in (_BRACE, _BRACKET) and shape.is_line_start and not shape.depth and not shape.quote:
        return _open(shape._replace(levels=()), byte)
    return _in_text(shape, byte)


def _in_text(shape: Shape, byte: int) -> Shape:
    if byte == _NEWLINE:
        return Shape(units=_with(shape.outside if shape.quote else shape.units, NL), depth=shape.depth)
    if shape.quote:
        return _in_quotation(shape, byte)
    if shape.is_line_start:
        if byte in _BLANKS:
            return _unit(shape, byte)._replace(indent=min(shape.indent + 1, MAX_INDENT))
        shape = shape._replace(is_line_start=False)
    if byte == _QUOTE or (byte in _QUOTES and not _ends_in_word(shape)):
        return shape._replace(units=(), word=b"", quote=byte, outside=shape.units)
    depth = shape.depth + (byte in _OPENING) - (byte in _CLOSING)
    return _unit(shape, byte)._replace(depth=max(0, min(depth, MAX_DEPTH)))


def _in_quotation(shape: Shape, byte: int) -> Shape:
    if byte == shape.quote and not shape.is_escaped:
        return shape._replace(units=_with(shape.outside, STR), word=b"", quote=0, outside=(), key=b"")
    is_escaped = byte == _BACKSLASH and not shape.is_escaped
    return _unit(shape, byte)._replace(is_escaped=is_escaped)


def _in_json(shape: Shape, byte: int) -> Shape:
    if shape.quote:
        return _in_json_string(shape, byte)
    if byte == _NEWLINE and shape.place == "end":
        return Shape(units=_with(shape.units, NL))
    if byte in _BLANKS or byte == _NEWLINE:
        return _unit(shape, byte)._replace(place="after" if shape.place == "scalar" else shape.place)
    if byte == _QUOTE and shape.place in ("key", "value"):
        return shape._replace(units=(), word=b"", quote=byte, outside=shape.units, place="in " + shape.place, key=b"")
    if byte in (_BRACE, _BRACKET) and shape.place == "value" and len(shape.levels) < MAX_LEVELS:
        return _open(shape, byte)
    if byte == ord(":") and shape.place == "colon":
        return _unit(shape, byte)._replace(place="value")
    if byte == ord(",") and shape.place in ("after", "scalar"):
        return _next_member(_unit(shape, byte))
    if byte in (ord("}"), ord("]")) and _may_close(shape, byte):
        levels = shape.levels[:-1]
        return _unit(shape, byte)._replace(levels=levels, place="after" if levels else "end")
    if shape.place in ("value", "scalar") and (byte in _DIGITS or byte in _WORD_BYTES or byte in b"+-."):
        return _unit(shape, byte)._replace(place="scalar")
    return _as_text(shape, byte)


def _in_json_string(shape: Shape, byte: int) -> Shape:
    if byte < 32:
        return _as_text(shape, byte)
    if byte == _QUOTE and not shape.is_escaped:
        closed = _in_quotation(shape, byte)
        if shape.place == "in value":
            return closed._replace(place="after")
        levels = (*shape.levels[:-1], shape.levels[-1]._replace(key=_key_text(shape.key)))
        return closed._replace(place="colon", levels=levels)
    key = shape.key + bytes([byte]) if shape.place == "in key" and len(shape.key) <= MAX_KEY_BYTES else shape.key
    return _in_quotation(shape, byte)._replace(key=key)


def _open(shape: Shape, byte: int) -> Shape:
    is_object = byte == _BRACE
    levels = (*shape.levels, Level(is_object=is_object))
    opened = _unit(shape, byte)._replace(levels=levels, place="key" if is_object else "value")
    return opened._replace(indent=0, is_line_start=False)


def _next_member(shape: Shape) -> Shape:
    top = shape.levels[-1]
    if not top.is_object:
        return shape._replace(place="value")
    top = top._replace(ordinal=min(top.ordinal + 1, MAX_ORDINAL))
    return shape._replace(levels=(*shape.levels[:-1], top), place="key")


def _may_close(shape: Shape, byte: int) -> bool:
    if not shape.levels or shape.levels[-1].is_object != (byte == ord("}")):
        return False
    return shape.place in ("after", "scalar", "key" if shape.levels[-1].is_object else "value")


def _as_text(shape: Shape, byte: int) -> Shape:
    """It was not JSON after all."""
    units = shape.outside if shape.quote else shape.units
    return _in_text(Shape(units=units, depth=min(len(shape.levels), MAX_DEPTH), is_line_start=False), byte)


def _unit(shape: Shape, byte: int) -> Shape:
    """The byte as a unit of its own, or as more of the last one."""
    last = shape.units[-1] if shape.units else ""
    if byte in _WORD_BYTES or byte >= 0x80 or (byte in _DIGITS and (shape.word or last == ID)):
        goes_on = bool(shape.word) or last == ID
        word = (shape.word if goes_on else b"") + bytes([byte])
        if (goes_on and not shape.word) or word not in _BEGINNINGS:
            word = b""
        unit = word.decode() if word in KEYWORDS else ID
        return shape._replace(units=_with(shape.units[:-1] if goes_on else shape.units, unit), word=word)
    if byte in _DIGITS:
        unit = NUM
    elif byte == _NEWLINE:
        unit = NL
    else:
        unit = WS if byte in _BLANKS or byte == 127 else chr(byte)
    is_same = unit == last and unit in (NUM, WS)
    return shape if is_same else shape._replace(units=_with(shape.units, unit), word=b"")


def _with(units: tuple[str, ...], unit: str) -> tuple[str, ...]:
    return (*units, unit)[-UNITS:]


def _ends_in_word(shape: Shape) -> bool:
    """An apostrophe inside a word opens no quotation."""
    return bool(shape.word) or (bool(shape.units) and shape.units[-1] in (ID, NUM))


def _key_text(key: bytes) -> str:
    try:
        return key.decode() if len(key) <= MAX_KEY_BYTES else ""
    except UnicodeDecodeError:
        return ""
