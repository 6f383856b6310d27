"""Cost tags: names and values by which a bill is split among teams and projects. A spec, an API key and a deployment
may each carry some; what is used is booked with the tags of that moment, and they never change afterwards.

A value is of ASCII letters, digits and a few signs, and begins with a letter or digit: it stands in addresses, in CSV
files and on invoices alike.
"""

import re
from collections.abc import Iterator, Mapping

from backend.domain.errors import InvalidInput, Problem
from backend.domain.pointers import join

MOST_TAGS = 10
NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,31}$"
VALUE_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9 ._/@+-]{0,62}[A-Za-z0-9])?$"
_NAME = re.compile(NAME_PATTERN[1:-1])
_VALUE = re.compile(VALUE_PATTERN[1:-1])

NAME_WORDS = "a tag's name has 1 to 32 characters: small letters, digits, _ and -, and begins with a letter"
VALUE_WORDS = (
    "a tag's value has 1 to 64 characters: letters, digits, spaces and . _ / @ + -, and begins and ends with a letter "
    "or digit"
)


def tag_problems(tags: Mapping[str, str], pointer: str) -> Iterator[Problem]:
    """Yield what is wrong with each tag, at its place under `pointer`."""
    if len(tags) > MOST_TAGS:
        message = f"has {len(tags)} tags; {MOST_TAGS} at most"
        yield Problem(pointer=pointer, message=message, code="too_large")
    for name, value in tags.items():
        if not _NAME.fullmatch(name):
            yield Problem(pointer=join(pointer, name), message=NAME_WORDS, code="bad_format")
        elif not isinstance(value, str) or not _VALUE.fullmatch(value):
            yield Problem(pointer=join(pointer, name), message=VALUE_WORDS, code="bad_format")


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags, in the order of their names. Raises InvalidInput (`bad_tags`)."""
    problems = tuple(tag_problems(tags, "/tags"))
    if problems:
        name = problems[0].pointer.removeprefix("/tags").removeprefix("/")[:40]
        of = f"The tag {name!r}" if name else "The request"
        raise InvalidInput(f"{of}: {problems[0].message}.", code="bad_tags", problems=problems[:MOST_TAGS])
    return dict(sorted(tags.items()))


def merge(*, under: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    """Both together; where both have a name, the value of `over`.

    >>> merge(under={"team": "search", "env": "ci"}, over={"team": "ads"})
    {'env': 'ci', 'team': 'ads'}
    """
    return dict(sorted({**under, **over}.items()))


def read_tags(text: str) -> dict[str, str]:
    """The tags of a line such as `team=search, project=router`; "" is none. Raises InvalidInput.

    >>> read_tags("team=search, project=router")
    {'project': 'router', 'team': 'search'}
    """
    tags: dict[str, str] = {}
    for part in (part.strip() for part in text.replace("\n", ",").split(",")):
        if not part:
            continue
        name, equals, value = (side.strip() for side in part.partition("="))
        if not equals or name in tags:
            message = f"Write tags as name=value, each name once, with commas between them; not {part[:60]!r}."
            raise InvalidInput(message, code="bad_tags")
        tags[name] = value
    return check_tags(tags)


def tag_line(tags: Mapping[str, str]) -> str:
    """The line that `read_tags` reads."""
    return ", ".join(f"{name}={value}" for name, value in sorted(tags.items()))
