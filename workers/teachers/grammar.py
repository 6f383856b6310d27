"""A seeded probabilistic context-free grammar with exact probabilities: of a text, of each of its tokens, at any
temperature.

It stands in for a language model where exactness must be provable: a text's probability here is a sum that brute
force can check. The grammar is acyclic, hence its language is finite. Temperature T turns every rule's weights w_i
into w_i^(1/T) / sum_j w_j^(1/T); T = 0 is the limit, uniform over the heaviest alternatives. A text with several
derivations has the sum of their probabilities, whichever of them was drawn.

Tokens are words with the spaces before them, and the end of the text. A token's log-prob is log P(t_i | t_1 ...
t_{i-1}) under the distribution over texts, by prefix sums, so the parts add up to the whole by the chain rule and
not by attribution.

YAML:  rules:  {name: ["text with {other} rules", [3, "an alternative of weight 3"]]}
       slices: {name: {start: "{rule}", label: refund_request}}
`{name|lower}`, `{name|bare}` (no punctuation), `{name|upper}` change every letter below: homomorphisms, so the
result is still such a grammar.
"""

import hashlib
import itertools
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import yaml

END = "<|end|>"
DEFAULT_GRAMMAR = Path(__file__).parent / "grammars" / "support.yaml"
_TOKEN = re.compile(r" *[^ ]+| +")
_PART = re.compile(r"\{([a-z0-9_]+(?:\|[a-z]+)*)\}|([^{}]+)")
_FILTERS: Mapping[str, Callable[[str], str]] = {
    "lower": str.lower,
    "upper": str.upper,
    "bare": lambda text: re.sub(r"[.,!?';:]", "", text),
}


K = TypeVar("K")


class BadGrammar(ValueError):
    """The file breaks a rule of the format; the message names the place."""


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
    name: str
    start: str
    label: str


Outcomes = dict[int, float]


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """`rules` is acyclic and complete: every Ref has a rule. `revision` is the sha256 of the bytes it was read from."""

    rules: Mapping[str, tuple[Alternative, ...]]
    slices: Mapping[str, GrammarSlice]
    revision: str

    @cached_property
    def _log_weights(self) -> dict[float, dict[str, tuple[float, ...]]]:
        return {}

    def log_weights(self, temperature: float) -> dict[str, tuple[float, ...]]:
        """Log-probability of each alternative of each rule at `temperature`."""
        known = self._log_weights.get(temperature)
        if known is None:
            if len(self._log_weights) >= 64:  # temperatures come from requests
                self._log_weights.clear()
            known = {name: _tempered([a.weight for a in alts], temperature) for name, alts in self.rules.items()}
            self._log_weights[temperature] = known
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
        """Where a text stands before its first token; see Frontier."""
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
        self._rules = grammar.rules
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
        for alternative, weight in zip(self._rules[name], self._weights[name], strict=True):
            if weight == -math.inf:
                continue
            alive: Outcomes = {at: weight}
            for part in alternative.parts:
                alive = self._step(part, alive, stops)
                if not alive:
                    break
            for j, mass in alive.items():
                ends[j] = _logadd(ends.get(j, -math.inf), mass)
        self._memo[(name, at)] = (ends, stops)
        return ends, stops

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
    """Where in `part` the word begun by `token` is over: at the first space after a letter. None if it may go on."""
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


def _tempered(weights: Sequence[float], temperature: float) -> tuple[float, ...]:
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


def load_grammar(data: bytes) -> Grammar:
    """Read and check a grammar file; raises BadGrammar."""
    try:
        document = yaml.safe_load(data)
    except yaml.YAMLError as wrong:
        raise BadGrammar("not valid YAML") from wrong
    if not isinstance(document, dict) or not isinstance(document.get("rules"), dict):
        raise BadGrammar("a grammar is a mapping with `rules` and `slices`")
    return build_grammar(document["rules"], document.get("slices") or {}, revision=hashlib.sha256(data).hexdigest())


def build_grammar(rules: Mapping[str, object], slices: Mapping[str, object], *, revision: str) -> Grammar:
    """A checked grammar from plain values: the `rules` and `slices` of the YAML form."""
    plain = {str(name): _alternatives(str(name), rows) for name, rows in rules.items()}
    found: dict[str, GrammarSlice] = {}
    for name, row in slices.items():
        if not isinstance(row, dict) or not isinstance(row.get("start"), str) or not isinstance(row.get("label"), str):
            raise BadGrammar(f"slice {name}: needs `start` and `label`")
        plain[f"slice:{name}"] = _alternatives(str(name), [row["start"]])
        found[str(name)] = GrammarSlice(name=str(name), start=f"slice:{name}", label=row["label"])
    expanded: dict[str, tuple[Alternative, ...]] = {}
    for name in plain:
        _expand_filters(name, plain, expanded, ())
    return Grammar(rules=expanded, slices=found, revision=revision)


def _alternatives(name: str, rows: object) -> tuple[Alternative, ...]:
    if not isinstance(rows, list) or not rows:
        raise BadGrammar(f"rule {name}: needs a list of alternatives")
    return tuple(_alternative(name, row) for row in rows)


def _alternative(name: str, row: object) -> Alternative:
    weight, text = row if isinstance(row, list) and len(row) == 2 else (1, row)
    if not isinstance(text, str) or isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
        raise BadGrammar(f"rule {name}: an alternative is a text or [weight above 0, text], not {row!r}")
    if re.search(r"[^\S ]", text):
        raise BadGrammar(f"rule {name}: the only white space in a grammar is the space")
    parts: list[Part] = [Ref(ref) if ref else literal for ref, literal in _PART.findall(text)]
    if "".join("{" + p.name + "}" if isinstance(p, Ref) else p for p in parts) != text:
        raise BadGrammar(f"rule {name}: unbalanced or empty braces in {text!r}")
    return Alternative(float(weight), tuple(parts))


def _expand_filters(
    name: str,
    plain: Mapping[str, tuple[Alternative, ...]],
    into: dict[str, tuple[Alternative, ...]],
    path: tuple[str, ...],
) -> None:
    """Write rule `name` ("rule|filter|filter") and all below it into `into`; depth first, so a cycle shows itself."""
    if name in path:
        raise BadGrammar(f"the rules go in a circle: {' > '.join((*path, name))}")
    if name in into:
        return
    base, *filters = name.split("|")
    if base not in plain or any(f not in _FILTERS for f in filters):
        raise BadGrammar(f"no rule or filter {name!r} (used in {path[-1] if path else 'the slices'})")

    def changed(part: Part) -> Part:
        if isinstance(part, Ref):
            inner, *more = part.name.split("|")
            return Ref("|".join([inner, *dict.fromkeys([*more, *filters])]))
        for f in filters:
            part = _FILTERS[f](part)
        return part

    rows = tuple(Alternative(a.weight, tuple(p for p in map(changed, a.parts) if p != "")) for a in plain[base])
    for row in rows:
        for part in row.parts:
            if isinstance(part, Ref):
                _expand_filters(part.name, plain, into, (*path, name))
    into[name] = rows
