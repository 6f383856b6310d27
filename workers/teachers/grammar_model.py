"""The grammar teacher as a model: kolm's prompts in, choices with exact log-probs out. No HTTP here;
`grammar_server` puts it on a wire."""

import math
import random
from dataclasses import dataclass

from workers.teachers.grammar_fallback import fallback_grammar
from workers.teachers.grammar_labels import Labeller
from workers.teachers.grammar_prompt import Asked, read_prompt
from workers.teachers.pcfg import END, Frontier, Grammar, tokenize

MODEL = "kolm-grammar-1"


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


class GrammarModel:
    """Immutable but for caches; safe to share between threads."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._labeller = Labeller(grammar)

    @property
    def revision(self) -> str:
        return self._grammar.revision

    def answer(
        self, content: str, *, n: int, temperature: float, seed: int | None, max_tokens: int, n_top: int = 0
    ) -> list[Written]:
        """`n` independent answers; equal arguments give equal answers unless `seed` is None. Raises NotOurPrompt."""
        asked = read_prompt(content)
        source = random.Random() if seed is None else random.Random(f"{seed}|{content}")
        drawn: list[Written] = []
        for _ in range(n):
            rng = random.Random(source.getrandbits(64))
            if asked.text is None:
                drawn.append(self._message(asked, temperature, rng, max_tokens, n_top))
            else:
                drawn.append(self._label(asked, temperature, rng, n_top))
        return drawn

    def score(self, content: str, text: str, *, temperature: float) -> tuple[Token, ...]:
        """The tokens of a given answer, END last; log-probs are -inf from the first token that cannot be."""
        asked = read_prompt(content)
        if asked.text is not None:
            return (Token(text=text, logprob=self._posterior(asked, temperature).get(text, -math.inf)),)
        grammar, start = self._grammar_for(asked)
        logprobs = grammar.token_logprobs(start, text, temperature=temperature)
        return tuple(Token(text=t, logprob=p) for t, p in zip([*tokenize(text), END], logprobs, strict=True))

    def _grammar_for(self, asked: Asked) -> tuple[Grammar, str]:
        """The file's slice of that name, if its label agrees; else a grammar made of the prompt's own words."""
        known = self._grammar.slices.get(asked.slice_name)
        if known is not None and self._labeller.knows(asked.labels) and asked.label in (None, known.label):
            return self._grammar, known.start
        return fallback_grammar(asked.slice_name, asked.hint, asked.label or "", asked.exemplars)

    def _message(self, asked: Asked, temperature: float, rng: random.Random, max_tokens: int, n_top: int) -> Written:
        grammar, start = self._grammar_for(asked)
        text = grammar.sample(start, temperature=temperature, rng=rng)
        logprobs = grammar.token_logprobs(start, text, temperature=temperature)
        tokens = [Token(text=t, logprob=p) for t, p in zip([*tokenize(text), END], logprobs, strict=True)]
        if n_top:
            tokens = _with_top(tokens, grammar.next_tokens(start, temperature), n_top)
        if len(tokens) <= max_tokens:
            return Written(text=text, tokens=tuple(tokens))
        kept = tokens[:max_tokens]
        return Written(text="".join(t.text for t in kept), tokens=tuple(kept), is_cut=True)

    def _label(self, asked: Asked, temperature: float, rng: random.Random, n_top: int) -> Written:
        """A label is one token; its end is certain and not counted."""
        posterior = self._posterior(asked, temperature)
        labels = list(posterior)
        (label,) = rng.choices(labels, [math.exp(posterior[name]) for name in labels])
        top = sorted(((name, p) for name, p in posterior.items() if p > -math.inf), key=lambda row: (-row[1], row[0]))
        return Written(text=label, tokens=(Token(text=label, logprob=posterior[label], top=tuple(top[:n_top])),))

    def _posterior(self, asked: Asked, temperature: float) -> dict[str, float]:
        return self._labeller.log_posterior(asked.text or "", asked.labels, asked.meanings, temperature=temperature)


def _with_top(tokens: list[Token], frontier: Frontier, n_top: int) -> list[Token]:
    out: list[Token] = []
    for token in tokens:
        ranked = sorted(frontier.logprobs.items(), key=lambda row: (-row[1], row[0]))
        out.append(Token(text=token.text, logprob=token.logprob, top=tuple(ranked[:n_top])))
        if token.text != END:
            frontier = frontier.after(token.text)
    return out
