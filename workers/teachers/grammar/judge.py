"""The grammar teacher as a judge. Its verdict is exact: it accepts a draft that the slice's grammar writes with a
probability above zero at temperature 1, and no other. It reads drafts and follows none."""

import json
import math
from collections.abc import Callable

from workers.teachers.grammar.judge_reader import AskedNumbers, NumberedTexts
from workers.teachers.grammar.pcfg import END, Grammar, tokenize
from workers.teachers.grammar.sampling import Token, Written
from workers.teachers.prompts.number_ranges import as_ranges


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
