"""Anchors as GitHub gives them, and links that lead out of docs/."""

import re
from collections.abc import Callable
from pathlib import PurePosixPath

_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(((?!https?:|mailto:|#|/)[^()\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def anchor_of(heading: str, separator: str = "-") -> str:
    """Give a heading GitHub's anchor: lower case, no punctuation but `-` and `_`, spaces as `-`.

    >>> anchor_of("Problems of a spec"), anchor_of("`k_exceeds_n`")
    ('problems-of-a-spec', 'k_exceeds_n')
    """
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)


def relink(markdown: str, page: str, target_of: Callable[[str], str | None]) -> str:
    """Replace the links of a page that lead out of docs/. `target_of` says, for a path from docs/ on that climbs out of
    it, where the site has that file; a link to what the site lacks becomes its words."""

    def link(match: re.Match[str]) -> str:
        words, address = match[1], match[2]
        path = _resolve(PurePosixPath(page).parent, address.partition("#")[0])
        if not path.startswith("../"):
            return match[0]
        target = target_of(path)
        return words if target is None else f"[{words}]({'../' * page.count('/')}{target})"

    return "".join(part if i % 2 else _LINK.sub(link, part) for i, part in enumerate(_FENCED.split(markdown)))


def _resolve(folder: PurePosixPath, address: str) -> str:
    parts: list[str] = [] if folder == PurePosixPath(".") else list(folder.parts)
    for part in PurePosixPath(address).parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
