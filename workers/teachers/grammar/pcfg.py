"""A seeded probabilistic context-free grammar with exact probabilities: of a text, of each of its tokens, at any
temperature.

It stands in for a language model where exactness must be provable: a text's probability here is a sum that brute
force can check. The grammar is acyclic, hence its language is finite. Temperature T turns every rule's weights w_i
into w_i^(1/T) / sum_j w_j^(1/T); T = 0 is the limit, uniform over the heaviest alternatives. A text with several
derivations has the sum of their probabilities, whichever of them was drawn.

Tokens are words with the spaces before them, and the end of the text. A token's log-prob is log P(t_i | t_1 ...
t_{i-1}) under the distribution over texts, by prefix sums, so the parts add up to the whole by the chain rule and
not by attribution.
"""

import itertools
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

END = "<|end|>"
_TOKEN = re.compile(r" *[^ ]+| +")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Ref:
    name: str


Part = str | Ref


@dataclass(frozen=True, slots=True)
class Alternative:
    weight: float
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarSlice:
    """`values` are the fields of an answer that hold for every text of the slice, `says` the sentences that tell a text
    in short (see message_reader). `part_of` names the slice of the same label that can write all that this one can."""

    name: str
    start: str
    label: str
    part_of: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerField:
    """A field of an answer is what one of `rules` wrote, as a text or (`is_count`) as a number. `find` are patterns of
    such values in texts that no grammar wrote."""

    rules: tuple[str, ...]
    is_count: bool = False
    find: tuple[str, ...] = ()


Outcomes = dict[int, float]


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """`rules` is acyclic and complete: every Ref has a rule. `revision` is the sha256 of the bytes it was read from.
    `synonyms` has the label that another name means."""

    rules: Mapping[str, tuple[Alternative, ...]]
    slices: Mapping[str, GrammarSlice]
    revision: str
    fields: Mapping[str, AnswerField] = field(default_factory=dict)
    synonyms: Mapping[str, str] = field(default_factory=dict)

    def label_of(self, name: str) -> str:
        """The grammar's own name of a label that a spec calls `name`; `name` itself where it is no synonym."""
        return self.synonyms.get(name, name)

    @cached_property
    def _log_weights(self) -> dict[float, dict[str, tuple[float, ...]]]:
        return {}

    def log_weights(self, temperature: float) -> dict[str, tuple[float, ...]]:
        """Log-probability of each alternative of each rule at `temperature`."""
        known = self._log_weights.get(temperature)
        if known is None:
            if len(self._log_weights) >= 64:  # temperatures come from requests
                self._log_weights.clear()
            known = {
                name: _apply_temperature([a.weight for a in alts], temperature) for name, alts in self.rules.items()
            }
            self._log_weights[temperature] = known
        return known

    def openers(self, name: str, char: str) -> tuple[int, ...]:
        """The alternatives of a rule that may begin with `char`, or be empty; at the end of a text `char` is ""."""
        char = (
            char if char in self._alphabet else ""
        )  # texts come from requests: the table stays as small as the grammar
        known = self._openers.get((name, char))
        if known is None:
            known = tuple(i for i, first in enumerate(self._first_chars[name]) if "" in first or char in first)
            self._openers[name, char] = known
        return known

    @cached_property
    def _openers(self) -> dict[tuple[str, str], tuple[int, ...]]:
        return {}

    @cached_property
    def _alphabet(self) -> frozenset[str]:
        return frozenset().union(*(first for rows in self._first_chars.values() for first in rows))

    @cached_property
    def _first_chars(self) -> dict[str, tuple[frozenset[str], ...]]:
        """{rule: of each alternative, the characters that its texts begin with; "" where one of them is empty}."""
        known: dict[str, tuple[frozenset[str], ...]] = {}

        def first_of(parts: Sequence[Part]) -> frozenset[str]:
            chars = frozenset({""})
            for part in parts:
                if "" not in chars:
                    break
                inner = frozenset(part[:1]) if isinstance(part, str) else frozenset().union(*rule(part.name))
                chars = (chars - {""}) | inner
            return chars

        def rule(name: str) -> tuple[frozenset[str], ...]:
            if name not in known:
                known[name] = tuple(first_of(row.parts) for row in self.rules[name])
            return known[name]

        for name in self.rules:
            rule(name)
        return known

    def sample(self, start: str, *, temperature: float, rng: random.Random) -> str:
        """One text, drawn by choosing an alternative at every rule."""
        weights = self.log_weights(temperature)
        out: list[str] = []
        todo: list[Part] = [Ref(start)]
        while todo:
            part = todo.pop()
            if isinstance(part, str):
                out.append(part)
                continue
            (chosen,) = rng.choices(self.rules[part.name], [math.exp(w) for w in weights[part.name]])
            todo.extend(reversed(chosen.parts))
        return "".join(out)

    def logprob(self, start: str, text: str, *, temperature: float) -> float:
        """log P(text), summed over all its derivations; -inf outside the language."""
        return _Chart(self, text, temperature).run(start).get(len(text), (-math.inf, -math.inf))[0]

    def token_logprobs(self, start: str, text: str, *, temperature: float) -> tuple[float, ...]:
        """One log-prob a token of `tokenize(text)`, then that of the end. -inf from the first token that cannot
        follow."""
        # the space after the text tells "goes on with another word" from "goes on inside this word"
        lcp = _Chart(self, text + " ", temperature).run(start)
        beyond = _tail_sums(lcp, len(text) + 1)
        masses = [0.0]
        at = 0
        for token in tokenize(text):
            at += len(token)
            ended = lcp.get(at, (-math.inf, -math.inf))[0]
            masses.append(_logadd(ended, beyond[at + 1]) if not token.isspace() else ended)
        masses.append(lcp.get(len(text), (-math.inf, -math.inf))[0])
        return tuple(
            (min(0.0, after - before) if before > -math.inf else -math.inf)
            for before, after in itertools.pairwise(masses)
        )

    def next_tokens(self, start: str, temperature: float) -> "Frontier":
        """The frontier of a text before its first token."""
        return Frontier(self, {(Ref(start), None): 0.0}, temperature)

    def language(self, start: str, *, temperature: float = 1.0) -> Iterator[tuple[str, float]]:
        """Every derivation's text and probability: the brute force that proofs compare with. Only for small
        grammars."""
        weights = self.log_weights(temperature)

        def expand(parts: Sequence[Part]) -> Iterator[tuple[str, float]]:
            if not parts:
                yield "", 0.0
                return
            head, rest = parts[0], parts[1:]
            if isinstance(head, str):
                yield from ((head + text, p) for text, p in expand(rest))
                return
            for alternative, w in zip(self.rules[head.name], weights[head.name], strict=True):
                if w > -math.inf:
                    yield from ((text, w + p) for text, p in expand((*alternative.parts, *rest)))

        for text, logprob in expand((Ref(start),)):
            yield text, math.exp(logprob)


class _Chart:
    """Longest-common-prefix chart of one text. For a symbol at a position: {j: (log-mass of derivations that match
    text[at:j] and end there, log-mass of derivations that match text[at:j] and then differ)}. One pass answers for
    every prefix of the text."""

    def __init__(self, grammar: Grammar, text: str, temperature: float) -> None:
        self._grammar = grammar
        self._weights = grammar.log_weights(temperature)
        self._text = text
        self._memo: dict[tuple[str, int], tuple[Outcomes, Outcomes]] = {}

    def run(self, start: str) -> dict[int, tuple[float, float]]:
        ends, stops = self._symbol(start, 0)
        return {j: (ends.get(j, -math.inf), stops.get(j, -math.inf)) for j in ends.keys() | stops.keys()}

    def _symbol(self, name: str, at: int) -> tuple[Outcomes, Outcomes]:
        known = self._memo.get((name, at))
        if known is not None:
            return known
        ends: Outcomes = {}
        stops: Outcomes = {}
        rows, weights = self._grammar.rules[name], self._weights[name]
        openers = self._grammar.openers(name, self._text[at : at + 1])
        if len(openers) < len(rows):
            stops[at] = self._rest(name, openers)
        for i in openers:
            if weights[i] == -math.inf:
                continue
            alive: Outcomes = {at: weights[i]}
            for part in rows[i].parts:
                alive = self._step(part, alive, stops)
                if not alive:
                    break
            for j, mass in alive.items():
                ends[j] = _logadd(ends.get(j, -math.inf), mass)
        self._memo[(name, at)] = (ends, stops)
        return ends, stops

    def _rest(self, name: str, openers: Sequence[int]) -> float:
        """Log-mass of the alternatives that differ from the text in their first character."""
        differ = set(range(len(self._weights[name]))).difference(openers)
        return _logsum(self._weights[name][i] for i in differ)

    def _step(self, part: Part, alive: Outcomes, stops: Outcomes) -> Outcomes:
        after: Outcomes = {}
        for at, mass in alive.items():
            if isinstance(part, Ref):
                part_ends, part_stops = self._symbol(part.name, at)
                for j, p in part_ends.items():
                    after[j] = _logadd(after.get(j, -math.inf), mass + p)
                for j, p in part_stops.items():
                    stops[j] = _logadd(stops.get(j, -math.inf), mass + p)
            elif self._text.startswith(part, at):
                j = at + len(part)
                after[j] = _logadd(after.get(j, -math.inf), mass)
            else:
                j = at + _common_prefix(self._text, at, part)
                stops[j] = _logadd(stops.get(j, -math.inf), mass)
        return after


Stack = tuple[Part, "Stack"] | None  # what is still to be written, nearest first


class Frontier:
    """The exact distribution of the next token after some tokens, by walking all derivations at once (equal
    remainders merged).

    A second road to the same numbers as `token_logprobs`, and the only one to tokens that were not drawn."""

    def __init__(self, grammar: Grammar, states: Mapping[Stack, float], temperature: float) -> None:
        self._grammar = grammar
        self._weights = grammar.log_weights(temperature)
        self._temperature = temperature
        self._total = _logsum(states.values())
        self._after = self._expand(states)

    @cached_property
    def logprobs(self) -> dict[str, float]:
        """{token: log-prob}; END for the end of the text. The probabilities sum to one."""
        return {token: _logsum(states.values()) - self._total for token, states in self._after.items()}

    def after(self, token: str) -> "Frontier":
        """The frontier after `token`; KeyError where it cannot follow."""
        return Frontier(self._grammar, self._after[token], self._temperature)

    def _expand(self, states: Mapping[Stack, float]) -> dict[str, dict[Stack, float]]:
        after: dict[str, dict[Stack, float]] = {}
        todo: dict[tuple[str, Stack], float] = {("", stack): mass for stack, mass in states.items()}
        while todo:
            (token, stack), mass = todo.popitem()
            if stack is None:
                _add(after.setdefault(token or END, {}), None, mass)
                continue
            part, rest = stack
            if isinstance(part, Ref):
                for alternative, weight in zip(self._grammar.rules[part.name], self._weights[part.name], strict=True):
                    if weight > -math.inf:
                        _add(todo, (token, _push(alternative.parts, rest)), mass + weight)
                continue
            cut = _word_end(token, part)
            if cut is None:
                _add(todo, (token + part, rest), mass)
            else:
                _add(after.setdefault(token + part[:cut], {}), (part[cut:], rest), mass)
        return after


def _push(parts: tuple[Part, ...], rest: Stack) -> Stack:
    for part in reversed(parts):
        rest = (part, rest)
    return rest


def _word_end(token: str, part: str) -> int | None:
    """The end in `part` of the word begun by `token`: the first space after a letter. None if it may go on."""
    in_word = bool(token.strip(" "))
    for at, char in enumerate(part):
        if char == " " and in_word:
            return at
        in_word = in_word or char != " "
    return None


def tokenize(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _common_prefix(text: str, at: int, part: str) -> int:
    n = 0
    while n < len(part) and at + n < len(text) and text[at + n] == part[n]:
        n += 1
    return n


def _tail_sums(lcp: Mapping[int, tuple[float, float]], last: int) -> list[float]:
    """sums[j] = log-mass of derivations that share at least j characters with the text, j = 0 ... last + 1."""
    sums = [-math.inf] * (last + 3)
    for j in range(last + 1, -1, -1):
        ended, stopped = lcp.get(j, (-math.inf, -math.inf))
        sums[j] = _logadd(sums[j + 1], _logadd(ended, stopped))
    return sums


def _apply_temperature(weights: Sequence[float], temperature: float) -> tuple[float, ...]:
    logs = [math.log(w) for w in weights]
    top = max(logs)
    if temperature <= 0:
        heaviest = sum(log == top for log in logs)
        return tuple(-math.log(heaviest) if log == top else -math.inf for log in logs)
    scaled = [(log - top) / temperature for log in logs]
    total = _logsum(scaled)
    return tuple(s - total for s in scaled)


def _logadd(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))


def _logsum(values: Iterable[float]) -> float:
    logs = list(values)
    top = max(logs, default=-math.inf)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(v - top) for v in logs))


def _add(into: dict[K, float], key: K, mass: float) -> None:
    into[key] = _logadd(into.get(key, -math.inf), mass)
