"""The teacher as the pipeline sees it: what is asked of it, and what it gets back. Nothing here knows a wire, a clock
or a price.

A teacher is anything with an `identity`, `caps`, `complete` and (where `caps.prompt_logprobs`) `score`. Its answers
are hostile input: a `Completion` holds strict Unicode of bounded size and plausible counts, but its text is still
only a claim to be verified.

    TeacherFailed(code)      retryable
      teacher_unreachable    yes        no connection, or it broke
      teacher_timeout        yes        the deadline passed, slow drips included
      teacher_rate_limited   yes        429 until the deadline
      teacher_only_thought   yes        it thought until its limit and gave no answer; the next try leaves it more room
      teacher_protocol       yes        the answer is not what the protocol promises (half JSON, invalid UTF-8, a wrong
                                        shape)
      teacher_too_large      no         the answer is longer than its request can explain
      teacher_rejected       no         a 4xx, a redirect, or an address this installation does not call
      teacher_no_recording   no         replay has no answer to this request
    TeacherCanceled          the caller's own `cancelled()` turned true
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from backend.domain import errors
from backend.domain.dialects.faults import TeacherFault
from backend.domain.drafts.vocabulary import EngineTokens

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`n_shared` characters at its beginning are the same in every request of its kind: what a vendor may cache."""

    role: Role
    content: str
    n_shared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """`n` independent answers to one chat. `item` is the raw text that a labelling request asks about: what replay
    matches on, and `n_before` how many answers of it there are from earlier requests: a recording goes on from there,
    and no vendor hears of it. `prefix` is the beginning of the answer, which the teacher goes on from and does not
    repeat; `top_logprobs` how many of the likeliest tokens it tells at each place (with `logprobs`). `drafts` are
    proposals for an engine that takes some; `cache_salt` keeps its prefix cache to one tenant, `cache_key` is the name
    under which a vendor's prompt cache is asked. `max_tokens` bounds the answer and `thought_tokens` what is thought
    before it; `effort` says how long to think. `answer_schema` is a JSON Schema, as JSON text, that the answer follows;
    `as_tool`: it may go out as a tool's, whose definition is a part of the prompt. `labels` are those that a choice is
    to have the log-probs of, by the likeliest tokens at each place; no vendor hears of them. Of the likeliest tokens
    those below `least_probability` are not kept."""

    messages: tuple[Message, ...]
    n: int = 1
    n_before: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    seed: int | None = None
    logprobs: bool = False
    item: str | None = None
    prefix: str = ""
    top_logprobs: int = 0
    top_k: int | None = None
    drafts: tuple[str, ...] = ()
    cache_salt: str | None = None
    cache_key: str = ""
    thought_tokens: int = 0
    effort: str = ""
    answer_schema: str = ""
    as_tool: bool = False
    labels: tuple[str, ...] = ()
    least_probability: float = 0.0

    @property
    def most_output_tokens(self) -> int:
        """The most that all its choices may hold together, thoughts included."""
        return self.n * (self.max_tokens + self.thought_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """A question: how likely is `text` as the answer to these messages? Nothing is generated. `top_logprobs` asks for
    that many of the likeliest tokens at each place."""

    messages: tuple[Message, ...]
    text: str
    temperature: float = 1.0
    top_k: int | None = None
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`logprob` is the sum over the completion's tokens, under the distribution that was sampled (temperature
    included) where the teacher says so; None where it tells nothing. `tokens`, `token_logprobs` and `top_logprobs` (the
    likeliest tokens at each place, best first) have one entry a token. Where the request names `labels`, these have
    given way to `label_logprobs`: of each label the log-prob, without those below `label_scores.LEAST`; None where the
    answer does not tell."""

    text: str
    logprob: float | None = None
    token_logprobs: tuple[float, ...] | None = None
    tokens: tuple[str, ...] | None = None
    top_logprobs: tuple[tuple[tuple[str, float], ...], ...] | None = None
    label_logprobs: dict[str, float] | None = None
    n_tokens: int = 0
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens to bill. `thought_tokens` are a part of the output. `estimated`: the teacher said nothing, we counted.
    `disputed`: what it said cannot be, and was clamped to what the request could cost at most."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    thought_tokens: int = 0
    estimated: bool = False
    disputed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Give between one and `n` choices: many servers ignore `n`. Whoever needs more asks again."""

    choices: tuple[Choice, ...]
    usage: Usage
    provider_request_id: str | None = None
    latency_ms: int = 0
    n_attempts: int = 1
    wasted: Usage = Usage()
    revision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherIdentity:
    """Goes into the receipt and scopes the draft cache. `revision` is "" where the teacher does not tell one,
    `endpoint` a digest of its address where it has one of its own."""

    provider: str
    model: str
    revision: str = ""
    endpoint: str = ""

    @property
    def name(self) -> str:
        """The identity without its revision: `openai_compatible:1f3a90c2/model`."""
        return f"{self.provider}:{self.endpoint}/{self.model}" if self.endpoint else f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherCaps:
    """`prompt_logprobs`: `score` works. `processed_scores`: the teacher itself applies temperature and top-k to what it
    scores; where not, they are worked out here from its raw log-probs. `prefix`: an answer can be begun for it.
    `engine_drafts`: it takes proposals. `max_top_logprobs`: how many alternatives it tells at each place."""

    logprobs: bool = False
    prompt_logprobs: bool = False
    processed_scores: bool = False
    prefix: bool = False
    engine_drafts: bool = False
    max_top_logprobs: int = 0


class Teacher(Protocol):
    @property
    def identity(self) -> TeacherIdentity: ...

    @property
    def caps(self) -> TeacherCaps: ...

    @property
    def thought_tokens(self) -> int:
        """Tokens that each of its answers needs for thoughts; 0 of a teacher that does not think."""
        ...

    def complete(
        self, request: CompletionRequest, *, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Completion:
        """Answer within `deadline_s` seconds, retries included, or raise TeacherFailed; TeacherCanceled about a
        second after `cancelled()`."""
        ...

    def score(
        self, request: ScoreRequest, *, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Completion:
        """log P(text | messages) as one choice whose text is the scored text; `tokens` and `token_logprobs` end with
        the end of the text where the teacher counts it. TeacherFailed("teacher_rejected") where `caps.prompt_logprobs`
        is false."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class CountingTeacher(Protocol):
    """A teacher whose engine counts what it makes of proposals."""

    def counters(self) -> EngineTokens | None:
        """Return the engine's own counts up to now, of all that it serves; None where they cannot be had."""
        ...


RETRYABLE = frozenset(
    {"teacher_unreachable", "teacher_timeout", "teacher_rate_limited", "teacher_protocol", "teacher_only_thought"}
)


class TeacherFailed(errors.TeacherFailed):
    """`usage` is what the failed attempts may have cost, when any of them was answered; None when nothing can have
    been billed. `fault` says what of the endpoint is wrong, where that could be told."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        usage: Usage | None = None,
        n_attempts: int = 0,
        fault: TeacherFault | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.usage = usage
        self.n_attempts = n_attempts
        self.fault = fault

    @property
    def retryable(self) -> bool:
        return self.code in RETRYABLE


class RewardFailed(TeacherFailed):
    """The model that gives the spec's rewards failed; the codes are a teacher's."""


class TeacherCanceled(Exception):
    """The compile was cancelled while the teacher was working; `usage` as in TeacherFailed."""

    def __init__(self, usage: Usage | None = None) -> None:
        super().__init__("the call to the teacher was cancelled")
        self.usage = usage
