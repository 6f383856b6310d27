"""JSON pointers (RFC 6901), and words for what stands at one: the kind of a value, the name that was probably meant.

Names are cut to 60 characters wherever they are compared or shown: they come from strangers.
"""

import difflib
from collections.abc import Sequence
from functools import lru_cache

MAX_NAME = 60  # characters of a name that are compared, or shown
MAX_KNOWN = 500  # names that one is compared with
_N_COMPARED = 5


def join(pointer: str, part: str | int) -> str:
    """RFC 6901: one reference token more."""
    return f"{pointer}/{str(part).replace('~', '~0').replace('/', '~1')}"


def kind_of(value: object) -> str:
    """The JSON kind of a value, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "a list"
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"


def suggestion(name: str, known: Sequence[str]) -> str:
    """`did you mean "task"?`, or the list of what is known when nothing is near.

    To compare two names in earnest takes milliseconds where they are made for it; so it is done with those few alone
    that share most pairs of letters with `name`."""
    meant = name[:MAX_NAME].casefold()
    pairs = _pairs(meant)
    shared = sorted(((len(pairs & _pairs(one)), -i) for i, one in enumerate(known[:MAX_KNOWN])), reverse=True)
    likely = [known[-i] for _, i in shared[:_N_COMPARED] if len(known[-i]) <= 2 * MAX_NAME]
    near = difflib.get_close_matches(meant, likely, n=1, cutoff=0.6)
    return f'did you mean "{near[0][:MAX_NAME]}"?' if near else f"known are {_list_names(known)}"


@lru_cache(maxsize=1024)
def _pairs(name: str) -> frozenset[str]:
    """The letters and pairs of letters, of the first MAX_NAME."""
    name = name[:MAX_NAME].casefold()
    return frozenset(name) | {name[i : i + 2] for i in range(len(name) - 1)}


def _list_names(known: Sequence[str]) -> str:
    return ", ".join(name[:MAX_NAME] for name in known[:40])
