"""Customers' regular expressions, compiled only when no text can make them run for long.

Python's `re` backtracks: `(a+)+$` on thirty letters runs for minutes while holding the interpreter. Instead of
guessing at bad shapes, the number of ways in which a pattern can match or fail is bounded from above over its parse
tree, and a pattern over the budget is refused.
"""

import math
import re
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

MAX_PATTERN_CHARS = 500
MAX_MATCHED_CHARS = 1000  # callers match at most this much of a text
MAX_WAYS = 2 * MAX_MATCHED_CHARS**3  # `.*refund.*` as a search costs 1000^3 / 6 steps at the very worst: about a second


class UnsafePattern(ValueError):
    """The message says what to change."""


def found_in(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the first MAX_MATCHED_CHARS characters: the length for which `compile_pattern`
    vouches.
    """
    return compile_pattern(pattern).search(text[:MAX_MATCHED_CHARS]) is not None


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The compiled pattern. Raises UnsafePattern when it is malformed, too long, or could backtrack for more than
    about a second.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UnsafePattern(f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_CHARS} are allowed")
    try:
        tree = sre_parser.parse(pattern)
        at_start = len(tree) > 0 and tree[0] == (sre.AT, sre.AT_BEGINNING)
        anchored = at_start and not tree.state.flags & re.MULTILINE  # with (?m) every line is a start
        ways = _ways(tree) * (1 if anchored else MAX_MATCHED_CHARS)
        if ways > MAX_WAYS:
            raise UnsafePattern(
                "the pattern could backtrack for too long: take repeats out of repeats, "
                "bound them (\\d{1,9} instead of \\d+), or anchor the pattern with ^"
            )
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UnsafePattern(f"the pattern is not a valid regular expression: {error}") from error


@lru_cache(maxsize=256)
def _degree(pattern: str) -> float:
    tree = sre_parser.parse(pattern)
    return max(1.0, math.log(_ways(tree) * MAX_MATCHED_CHARS) / math.log(MAX_MATCHED_CHARS))


def steps(pattern: str, n_chars: int) -> int:
    """About how many steps a search in so many characters takes at the worst: some ten million are a second.

    The ways of a pattern that `compile_pattern` took grow with a power of the text's length; the power that makes them
    what they are at MAX_MATCHED_CHARS is taken for all lengths.
    """
    return math.ceil(math.pow(max(1, n_chars), _degree(pattern)))


def _ways(node: Any) -> int:
    """Upper bound on the ways to walk through a sequence of parsed items, on a text of MAX_MATCHED_CHARS."""
    ways = 1
    for op, argument in node:
        ways *= _ways_of(op, argument)
        if ways > MAX_WAYS:  # also keeps the integers small
            return MAX_WAYS + 1
    return ways


def _ways_of(op: Any, argument: Any) -> int:
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return _ways_of_repeat(*argument)
    if op is sre.SUBPATTERN:
        return _ways(argument[-1])
    if op is sre.ATOMIC_GROUP:
        return _ways(argument)
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return _ways(argument[1])
    if op is sre.BRANCH:
        branches = argument[1]
        starts = [branch[0] if len(branch) else None for branch in branches]
        # branches that begin with different letters cannot both be entered
        letters = {chr(s[1]).casefold() for s in starts if s is not None and s[0] is sre.LITERAL}
        disjoint = len(letters) == len(branches)
        costs = [_ways(branch) for branch in branches]
        return int(max(costs) if disjoint else sum(costs))
    if op in (sre.GROUPREF, sre.GROUPREF_EXISTS):
        raise UnsafePattern("the pattern refers back to a group, which cannot be bounded: write the alternatives out")
    return 1


def _ways_of_repeat(low: int, high: int, body: Any) -> int:
    inner = _ways(body)
    most = min(int(high), MAX_MATCHED_CHARS)
    choices = most - min(int(low), most) + 1
    if inner == 1:
        return choices
    if most > 64:
        return MAX_WAYS + 1
    return int(min(choices * inner**most, MAX_WAYS + 1))
