"""A draft as its teacher's tokens, and what the teacher says of them under a prompt.

Answers are hostile input: tokens that are not the draft's, rows that do not add up, no end where one is needed, all
raise Refused. So do drafts whose stored tokens are not their text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.drafts.acceptance_rules import Distribution
from backend.domain.drafts.token_distributions import whole_place
from backend.domain.drafts.vocabulary import StoredDraft
from workers.teachers.protocol import Choice, Message, ScoreRequest
from workers.teachers.verifiers.conversations import Refused
from workers.teachers.verifiers.protocol import Answer, SamplingPolicy

AGREEMENT = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """`names` are all tokens, the end's among them where `has_end`; `logprobs` what was stored of each, if anything."""

    names: tuple[str, ...]
    has_end: bool
    logprobs: tuple[float, ...] | None

    @property
    def n_text(self) -> int:
        return len(self.names) - self.has_end

    def text(self, n: int) -> str:
        """The text of the first `n` tokens."""
        return "".join(self.names[: min(n, self.n_text)])


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDistribution:
    """One place of a scored draft: the probability of the draft's token, and the whole distribution where the
    alternatives are all of it. They are kept as they came, with log-probs."""

    probability: float
    whole: Distribution | None
    alternatives: dict[str, float]


def stored_tokens(draft: StoredDraft, *, max_tokens: int) -> Tokens:
    """The draft's tokens as they were stored. Refused without any, or where they are not its text, or more than a fresh
    answer may have."""
    names, logprobs = draft.tokens, draft.token_logprobs
    if not draft.text or not names or max(len(names), draft.n_tokens) > max_tokens:
        raise Refused
    if logprobs is not None and not _are_logprobs(logprobs, len(names)):
        raise Refused
    return _tokens(draft.text, names, logprobs)


def _are_logprobs(values: Sequence[float], n: int) -> bool:
    return len(values) == n and all(math.isfinite(value) and value <= 0 for value in values)


def _tokens(text: str, names: tuple[str, ...], logprobs: tuple[float, ...] | None) -> Tokens:
    """The end is a token without text of its own in the draft: all but it are the text."""
    if "".join(names) == text:
        return Tokens(names=names, has_end=False, logprobs=logprobs)
    if names and "".join(names[:-1]) == text:
        return Tokens(names=names, has_end=True, logprobs=logprobs)
    raise Refused


def score_request(messages: tuple[Message, ...], text: str, policy: SamplingPolicy, n_top: int) -> ScoreRequest:
    return ScoreRequest(
        messages=messages, text=text, temperature=policy.temperature, top_k=policy.top_k, top_logprobs=n_top
    )


def distributions_of(tokens: Tokens, start: int, stop: int, answer: Answer) -> list[TokenDistribution]:
    """The places `start` ... `stop` - 1 of the draft, from the score of its first `stop` tokens."""
    choice = _checked_choice(answer)
    names = choice.tokens or ()
    n_text = min(stop, tokens.n_text)
    if names[:n_text] != tokens.names[:n_text] or len(names) > n_text + 1:
        raise Refused
    return [_distribution(tokens.names[i], choice, i) for i in range(start, stop)]


def _checked_choice(answer: Answer) -> Choice:
    """Answers may come from a journal: the lengths are checked again."""
    if not answer.choices:
        raise Refused
    choice = answer.choices[0]
    n = len(choice.tokens or ())
    if not n or not _are_logprobs(choice.token_logprobs or (), n):
        raise Refused
    if choice.top_logprobs is not None and len(choice.top_logprobs) != n:
        raise Refused
    return choice


def _distribution(name: str, choice: Choice, i: int) -> TokenDistribution:
    """The place's distribution. At the text's end a teacher may name another token than the draft's end: then the
    alternatives decide."""
    names, logprobs = choice.tokens or (), choice.token_logprobs or ()
    if i >= len(names):
        raise Refused
    rows = () if choice.top_logprobs is None else choice.top_logprobs[i]
    whole = whole_place(rows)
    alternatives = dict(rows)
    if names[i] == name:
        alternatives[name] = logprobs[i]
        if whole is not None and abs(whole.get(name, 0.0) - math.exp(logprobs[i])) > AGREEMENT:
            raise Refused
        return TokenDistribution(
            probability=math.exp(logprobs[i]) if whole is None else whole.get(name, 0.0),
            whole=whole,
            alternatives=alternatives,
        )
    if name in alternatives:
        return TokenDistribution(probability=math.exp(alternatives[name]), whole=whole, alternatives=alternatives)
    if whole is None:
        raise Refused
    return TokenDistribution(probability=0.0, whole=whole, alternatives=alternatives)
