"""The grammar teacher as a model: kolm's prompts in, choices with exact log-probs out. No HTTP here;
`server` puts it on a wire."""

import functools
import json
import math
import random
from dataclasses import dataclass

from workers.teachers.grammar.answers import START, answer_grammar, likeliest_answer, preference_grammar
from workers.teachers.grammar.fallback import fallback_grammar
from workers.teachers.grammar.judge import judge_numbers
from workers.teachers.grammar.judge_reader import NumberedTexts
from workers.teachers.grammar.labels import Labeller
from workers.teachers.grammar.message_reader import Reader
from workers.teachers.grammar.pcfg import END, Frontier, Grammar, tokenize
from workers.teachers.grammar.prompt_reader import ReadPrompt, read_prompt
from workers.teachers.grammar.refusal import NotOurPrompt
from workers.teachers.grammar.sampling import Token, Written, advance, likeliest, retrace, walk

MODEL = "kolm-grammar-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The sampling of answers. `n_top` alternatives are reported of each token; `prefix` is how each answer begins."""

    temperature: float = 1.0
    top_k: int | None = None
    max_tokens: int = 1024
    n_top: int = 0
    prefix: str = ""


class GrammarModel:
    """Immutable but for caches; safe to share between threads."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._labeller = Labeller(grammar)
        self._reader = Reader(grammar)
        self._answers = functools.lru_cache(maxsize=256)(self._answer_grammar)

    @property
    def revision(self) -> str:
        return self._grammar.revision

    def answer(self, content: str, *, n: int, seed: int | None, policy: Policy) -> list[Written]:
        """`n` independent answers; equal arguments give equal answers unless `seed` is None. Raises NotOurPrompt."""
        asked = read_prompt(content)
        if asked.numbers is not None:
            grammar_of = functools.partial(self._slice_grammar, labels=asked.labels)
            return [judge_numbers(asked.numbers, grammar_of, max_tokens=policy.max_tokens)] * n
        source = random.Random() if seed is None else random.Random(f"{seed}|{content}")
        drawn: list[Written] = []
        for _ in range(n):
            rng = random.Random(source.getrandbits(64))
            drawn.append(self._label(asked, policy, rng) if asks_label(asked) else self._message(asked, policy, rng))
        return drawn

    def score(
        self, content: str, text: str, *, temperature: float, top_k: int | None = None, n_top: int = 0
    ) -> tuple[Token, ...]:
        """The tokens of a given answer, END last. Log-probs are -inf from the first token that cannot follow, under
        top-k also at each token that is not among the likeliest."""
        asked = read_prompt(content)
        if asks_label(asked):
            ranked = likeliest(self._posterior(asked, temperature), top_k)
            return (Token(text=text, logprob=dict(ranked).get(text, -math.inf), top=_possible(ranked, n_top)),)
        grammar, start = self._grammar_for(asked)
        if top_k is not None or n_top:
            frontier = grammar.next_tokens(start, temperature)
            return retrace(frontier, [*tokenize(text), END], top_k=top_k, n_top=n_top)
        logprobs = grammar.token_logprobs(start, text, temperature=temperature)
        return tuple(Token(text=t, logprob=p) for t, p in zip([*tokenize(text), END], logprobs, strict=True))

    def _grammar_for(self, asked: ReadPrompt) -> tuple[Grammar, str]:
        """The file's slice of that name, if its label agrees or is a synonym of its own; else a grammar made of the
        prompt's own words. A hint in other words changes nothing: the file says what is written under a name. Of an
        answer, the distribution over answers."""
        if asked.answer is not None:
            schema = None if asked.answer.schema is None else json.dumps(asked.answer.schema)
            return self._answers(asked.text or "", schema, asked.answer.longest, asked.answer.pair), START
        return self._slice_grammar(asked, labels=asked.labels, exemplars=asked.exemplars)

    def _slice_grammar(
        self, asked: ReadPrompt | NumberedTexts, *, labels: tuple[str, ...], exemplars: tuple[str, ...] = ()
    ) -> tuple[Grammar, str]:
        known = self._grammar.slices.get(asked.slice_name)
        label = None if asked.label is None else self._grammar.label_of(asked.label)
        if known is not None and self._labeller.knows(labels) and label in (None, known.label):
            return self._grammar, known.start
        return fallback_grammar(asked.slice_name, asked.hint, asked.label or "", exemplars)

    def _answer_grammar(self, text: str, schema: str | None, longest: int, pair: tuple[str, str] | None) -> Grammar:
        wanted = None if schema is None else json.loads(schema)
        answers = answer_grammar(self._reader, self._grammar, text, wanted, longest)
        return answers if pair is None else preference_grammar(likeliest_answer(answers), *pair)

    def _message(self, asked: ReadPrompt, policy: Policy, rng: random.Random) -> Written:
        grammar, start = self._grammar_for(asked)
        if policy.prefix or policy.top_k is not None:
            try:
                frontier = advance(grammar.next_tokens(start, policy.temperature), policy.prefix)
            except KeyError:
                raise NotOurPrompt("no answer to this prompt begins so") from None
            return walk(frontier, top_k=policy.top_k, rng=rng, max_tokens=policy.max_tokens, n_top=policy.n_top)
        text = grammar.sample(start, temperature=policy.temperature, rng=rng)
        logprobs = grammar.token_logprobs(start, text, temperature=policy.temperature)
        tokens = [Token(text=t, logprob=p) for t, p in zip([*tokenize(text), END], logprobs, strict=True)]
        if policy.n_top:
            tokens = _with_top(tokens, grammar.next_tokens(start, policy.temperature), policy.n_top)
        if len(tokens) <= policy.max_tokens:
            return Written(text=text, tokens=tuple(tokens))
        kept = tokens[: policy.max_tokens]
        return Written(text="".join(t.text for t in kept), tokens=tuple(kept), is_cut=True)

    def _label(self, asked: ReadPrompt, policy: Policy, rng: random.Random) -> Written:
        """A label is one token; its end is certain and not counted, so nothing follows a label that was begun."""
        posterior = self._posterior(asked, policy.temperature)
        if policy.prefix:
            if policy.prefix not in posterior:
                raise NotOurPrompt("no answer to this prompt begins so")
            return Written(text="", tokens=())
        ranked = likeliest(posterior, policy.top_k)
        by_name = dict(ranked)
        labels = [name for name in posterior if name in by_name]
        (label,) = rng.choices(labels, [math.exp(by_name[name]) for name in labels])
        token = Token(text=label, logprob=by_name[label], top=_possible(ranked, policy.n_top))
        return Written(text=label, tokens=(token,))

    def _posterior(self, asked: ReadPrompt, temperature: float) -> dict[str, float]:
        return self._labeller.log_posterior(asked.text or "", asked.labels, asked.meanings, temperature=temperature)


def asks_label(asked: ReadPrompt) -> bool:
    return asked.text is not None and asked.answer is None


def _possible(ranked: list[tuple[str, float]], n_top: int) -> tuple[tuple[str, float], ...]:
    return tuple((name, p) for name, p in ranked[:n_top] if p > -math.inf)


def _with_top(tokens: list[Token], frontier: Frontier, n_top: int) -> list[Token]:
    rows = retrace(frontier, [t.text for t in tokens], top_k=None, n_top=n_top)
    return [Token(text=t.text, logprob=t.logprob, top=row.top) for t, row in zip(tokens, rows, strict=True)]
