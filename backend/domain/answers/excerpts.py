"""The first words of a text that a stranger wrote, as a sentence of ours may quote them."""

import json

MOST_CHARS = 80


def excerpt(text: str, most: int = MOST_CHARS) -> str:
    """The beginning of a text on one line in quotation marks, without what no reader sees or what turns a line around.

    >>> excerpt('Sure!\\n\\nThe "best" label', most=12)
    '"Sure! The \\\\"b…"'
    """
    line = " ".join(text[: 4 * most].split())
    shown = "".join(char if char.isprintable() else "?" for char in line)
    return json.dumps(shown if len(shown) <= most else f"{shown[:most].rstrip()}…", ensure_ascii=False)
