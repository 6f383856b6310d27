"""The grammar teacher as a judge. Its verdict is exact: it accepts a draft that the slice's grammar writes with a
probability above zero at temperature 1, and no other. It reads drafts and follows none."""

import json
import math
from collections.abc import Callable
from typing import Any

from workers.teachers.grammar.judge_reader import AskedNumbers, NumberedTexts
from workers.teachers.grammar.pcfg import END, Grammar, tokenize
from workers.teachers.grammar.refusal import NotOurPrompt
from workers.teachers.grammar.sampling import Token, Written
from workers.teachers.prompts.number_ranges import as_ranges


def judge(drafts: str, grammar: Grammar, start: str, *, max_tokens: int) -> Written:
    """The JSON array of the accepted ids out of a JSON array of drafts, every token certain. Raises NotOurPrompt."""
    accepted = [id_ for id_, text in _read(drafts) if _writes(grammar, start, text)]
    return _certain(json.dumps(accepted), max_tokens)


def judge_numbers(
    asked: AskedNumbers, grammar_of: Callable[[NumberedTexts], tuple[Grammar, str]], *, max_tokens: int
) -> Written:
    """The ranges of the numbers that are asked for, each text judged by its own slice's grammar; every token
    certain."""
    numbers = []
    for part in asked.parts:
        grammar, start = grammar_of(part)
        numbers += [n for n, text in part.texts if _writes(grammar, start, text) != asked.asks_misplaced]
    ranges = as_ranges(numbers)
    return _certain(json.dumps({asked.member: ranges}) if asked.member else ranges, max_tokens)


def _writes(grammar: Grammar, start: str, text: str) -> bool:
    return grammar.logprob(start, text, temperature=1.0) > -math.inf


def _certain(answer: str, max_tokens: int) -> Written:
    """An answer that nothing was drawn for, cut where it may not go on."""
    tokens = [Token(text=token, logprob=0.0) for token in [*tokenize(answer), END]]
    is_cut = len(tokens) > max_tokens
    kept = tokens[:max_tokens]
    text = "".join(token.text for token in kept if token.text != END)
    return Written(text=text, tokens=tuple(kept), is_cut=is_cut)


def _read(drafts: str) -> list[tuple[str, str]]:
    try:
        rows = json.loads(drafts)
    except (ValueError, RecursionError) as wrong:
        raise NotOurPrompt("a judge prompt holds JSON") from wrong
    if not isinstance(rows, list) or not all(_is_pair(row) for row in rows):
        raise NotOurPrompt("a judge prompt holds a JSON array of [id, text]")
    return [(id_, text) for id_, text in rows]


def _is_pair(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 2 and all(isinstance(value, str) for value in row)
