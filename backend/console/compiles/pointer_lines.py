"""The lines of the editor's text: the line of what a JSON pointer names."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(slots=True)
class Place:
    """A value's line (from 1; of an object's field, that of its key) and the places inside it."""

    line: int
    inside: dict[str, "Place"] | list["Place"] | None = None


def line_of(root: Place, pointer: str) -> int:
    """The line of what `pointer` names, or of the nearest part around it."""
    here = root
    for part in pointer.split("/")[1:]:
        child = _step(here.inside, part.replace("~1", "/").replace("~0", "~"))
        if child is None:
            break
        here = child
    return here.line


def _step(inside: Mapping[str, Place] | Sequence[Place] | None, part: str) -> Place | None:
    if isinstance(inside, Mapping):
        return inside.get(part)
    if inside is not None and part.isdecimal() and len(part) < 10 and int(part) < len(inside):
        return inside[int(part)]
    return None


def places_of_json(text: str) -> Place:
    """Return the places of a text that `json.loads` has read."""
    root: Place | None = None
    around: list[Any] = []
    key: Place | None = None  # of a field whose value comes next
    line, at, is_key = 1, 0, False
    for token in _TOKEN.finditer(text):
        line += text.count("\n", at, token.start())
        at = token.start()
        mark = text[at]
        if mark in "]}":
            around.pop()
            is_key = False
        elif mark == ",":
            is_key = isinstance(around[-1], dict)
        elif mark == ":":
            is_key = False
        elif is_key:
            key = around[-1][json.loads(token[0])] = Place(line)
            is_key = False
        else:
            place = key or Place(line)
            root, key = root or place, None
            if around and isinstance(around[-1], list):
                around[-1].append(place)
            if mark in "[{":
                place.inside = {} if mark == "{" else []
                around.append(place.inside)
                is_key = mark == "{"
    return root or Place(1)
