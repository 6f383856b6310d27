"""The text of a server or a file as a terminal shows it: no character of it moves the cursor, names the window or turns
the direction of reading.

One stream stands before standard output and standard error of every command, so that no command has to remember. The
escapes are JSON's, so a document printed for a program means what it meant.
"""

import unicodedata
from typing import Any, TextIO

_KEPT = "\n\t"


def as_text(text: str) -> str:
    """`text` with every control and format character (categories Cc, Cf, Zl, Zp, Cs) but line feed and tab as
    `\\u001b`."""
    return text if text.isascii() and text.isprintable() else "".join(map(_escape, text))


def as_line(text: str) -> str:
    """The same on one line: a label's line feed must not look like a line of ours."""
    return as_text(text).replace("\n", "\\n").replace("\t", "\\t")


def _escape(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp", "Cs"):
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class TextOnly:
    """A text stream whose `write` escapes. `raw` is the stream behind it, for what draws: its texts go through
    `as_text` one by one."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        self.raw.write(as_text(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw(stream: Any) -> TextIO:
    """The stream that may draw."""
    behind: TextIO = stream.raw if isinstance(stream, TextOnly) else stream
    return behind
