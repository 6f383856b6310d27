"""Token by token through a grammar: how an answer is sampled under top-k or from a begun text, and how a given one is
scored with the alternatives at each place.

Under top-k a place keeps its k likeliest tokens (ties by their text) and renormalises, as an engine does: so the
log-probs are those of the distribution that was sampled.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from workers.teachers.grammar.pcfg import END, Frontier, tokenize


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`top` are the likeliest tokens at this place with their log-probs, best first; the drawn one is not always
    among them."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One answer. `tokens` end with END unless `is_cut`."""

    text: str
    tokens: tuple[Token, ...]
    is_cut: bool = False


def advance(frontier: Frontier, prefix: str) -> Frontier:
    """The frontier after `prefix`; KeyError where no answer begins so."""
    for token in tokenize(prefix):
        frontier = frontier.after(token)
    return frontier


def likeliest(logprobs: dict[str, float], top_k: int | None) -> list[tuple[str, float]]:
    """The distribution that is sampled, best first: all tokens, or the `top_k` likeliest renormalised."""
    ranked = sorted(logprobs.items(), key=lambda row: (-row[1], row[0]))
    if top_k is None or top_k >= len(ranked):
        return ranked
    kept = ranked[:top_k]
    total = math.log(math.fsum(math.exp(p) for _, p in kept))
    return [(token, p - total) for token, p in kept]


def walk(frontier: Frontier, *, top_k: int | None, rng: random.Random, max_tokens: int, n_top: int) -> Written:
    """Draw the rest of an answer, one token after another."""
    tokens: list[Token] = []
    while len(tokens) < max_tokens:
        ranked = likeliest(frontier.logprobs, top_k)
        ((text, logprob),) = rng.choices(ranked, [math.exp(p) for _, p in ranked])
        tokens.append(Token(text=text, logprob=logprob, top=tuple(ranked[:n_top])))
        if text == END:
            return Written(text="".join(t.text for t in tokens[:-1]), tokens=tuple(tokens))
        frontier = frontier.after(text)
    return Written(text="".join(t.text for t in tokens), tokens=tuple(tokens), is_cut=True)


def retrace(frontier: Frontier, tokens: Sequence[str], *, top_k: int | None, n_top: int) -> tuple[Token, ...]:
    """The given tokens, each with its log-prob after the ones before it: -inf where it cannot be drawn. After one that
    cannot even follow, all are, and there are no alternatives."""
    scores: list[Token] = []
    here: Frontier | None = frontier
    for text in tokens:
        ranked = likeliest(here.logprobs, top_k) if here is not None else []
        scores.append(Token(text=text, logprob=dict(ranked).get(text, -math.inf), top=tuple(ranked[:n_top])))
        can_follow = here is not None and text != END and text in here.logprobs
        here = here.after(text) if here is not None and can_follow else None
    return tuple(scores)
