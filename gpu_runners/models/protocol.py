"""The requests to an engine and its answers, whichever engine it is. Nothing here knows torch, vLLM or HTTP.

An engine batches whatever is asked at the same time. Who stops reading an answer closes the iterator, and the engine
gives its place to the next request at the next token.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"


class ConstraintKind(StrEnum):
    JSON_SCHEMA = "json_schema"  # `value` is the schema's JSON text
    JSON_OBJECT = "json_object"  # any JSON object; `value` is ""
    CHOICES = "choices"  # `value` is a JSON list of texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """The form that an answer must have. White space outside strings is not free: it is what `json.dumps` writes, so
    that a student cannot dawdle and a schema forces as many tokens as it can."""

    kind: ConstraintKind
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRef:
    """A LoRA adapter as a PEFT folder (`gpu_runners.models.causal_adapter.write_peft_folder`) that was made from a
    verified `.kolm`. `key` (its sha256) names it everywhere; `number` is its stable id above 0, for engines that want
    one."""

    key: str
    folder: Path
    number: int


class DraftKind(StrEnum):
    """The source of drafted tokens."""

    PACK = "pack"  # the artifact's recipe pack
    SCHEMA = "schema"  # what the constraint forces
    PROMPT = "prompt"  # what followed the same tokens in the prompt or the answer so far
    MODEL = "model"  # a smaller model of the same tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRef:
    """A verified recipes.json as a file; `key` is the sha256 of its bytes."""

    key: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """The sources that may draft for a request, in order of preference, and how far. `is_gated`: measured acceptance
    and cost decide how much is drafted, so that drafts cost next to nothing where they do not pay; False drafts always
    (tests and benchmarks). `learns`: the answer's tokens may go into the pack's feedback, as its tenant said."""

    kinds: tuple[DraftKind, ...]
    pack: PackRef | None = None
    max_draft: int = 16
    is_gated: bool = True
    learns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """`prompt` are token ids. `temperature` 0 is greedy. `top_logprobs` None: no log-probs; n: those of the chosen
    token and of the n likeliest. `top_k` 0 and `top_p` 1: all tokens. `tenant` owns what the engine keeps of it,
    `cache_salt` what keeps a prefix cache apart. A text of `stop` ends the answer and is not part of it."""

    id: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    adapter: AdapterRef | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None
    constraint: Constraint | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    tenant: str = ""
    cache_salt: str = ""
    drafting: Drafting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """`top` are (token text, log-prob), likeliest first."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCount:
    kind: DraftKind
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of one request so far. `cached` prompt tokens were not computed again; `accepted` of the `drafted`
    tokens are among the completion tokens. `steps` are the forward passes that gave completion tokens (0: not
    known)."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    steps: int = 0
    by_source: tuple[SourceCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """The text that came since the last one. `text` is whole characters: a token that ends inside one waits for the
    next. The last delta alone has a `finish_reason`. `logprob` is the sum over all completion tokens so far."""

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    logprob: float = 0.0
    finish_reason: FinishReason | None = None
    counts: Counts = field(default_factory=Counts)


class Rejected(Exception):
    """The engine cannot do this request at all (`code`: context_too_long, bad_constraint, bad_adapter, bad_pack,
    unsupported); the message says what to change."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class Overloaded(Exception):
    """Too many are waiting; come back after `retry_after_s`."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many requests are waiting")
        self.retry_after_s = retry_after_s


class EngineFailed(Exception):
    """The engine broke while it worked on this request (`code`: nan_logits, out_of_memory, bad_constraint,
    engine_stopped). May come after deltas; nothing of the request is in the message."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class Engine(Protocol):
    """`about` is what really runs (name, version, device, dtype, attention, KV dtype, draft source, adapter slots ...):
    texts and whole numbers, for /metrics, deployments and receipts."""

    @property
    def about(self) -> Mapping[str, Any]: ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[Delta]:
        """Raises Rejected or Overloaded before the first delta, EngineFailed at any time. Closing cancels."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Since the start: prompt_tokens, cached_tokens, completion_tokens, drafted_tokens, accepted_tokens, requests,
        canceled, running, waiting, adapter_loads, adapter_evictions."""
        ...

    async def forget(self, key: str) -> None:
        """Drop an adapter from every tier of the engine; running requests of it end as they are."""
        ...

    async def close(self) -> None: ...
