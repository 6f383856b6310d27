"""One request on its way through the engine: what was asked, what has come, and when it ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_runners.engine.lora_slots import Prepared
from gpu_runners.engine.mailbox import Mailbox
from gpu_runners.engine.sampling import LogitPosition, Sampled, Sampler
from gpu_runners.engine.text import Detokenizer, StopStrings
from gpu_runners.models.protocol import (
    Counts,
    Delta,
    EngineFailed,
    FinishReason,
    GenerationRequest,
    SourceCount,
    TokenLogprob,
)
from gpu_runners.speculation.drafter import Drafter


@dataclass(slots=True, eq=False)
class TokenSequence:
    """A request in the engine. `tokens` are prompt and answer; the first `n_cached` of them have keys in the KV slot.
    `limit` is the longest they may get."""

    request: GenerationRequest
    adapter: Prepared | None
    matcher: Any | None
    sampler: Sampler
    words: Detokenizer
    stops: StopStrings
    eos_ids: frozenset[int]
    limit: int
    mailbox: Mailbox
    tokens: list[int]
    pool: Any = None
    slot: int = -1
    n_cached: int = 0
    n_reused: int = 0  # of the prompt, whose keys were known
    reading: bool = True
    canceled: bool = False
    drafter: Drafter | None = None  # where the request wants drafts
    draft: list[int] = field(default_factory=list)  # what this step verifies
    n_steps: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    by_source: tuple[SourceCount, ...] = ()  # once its drafter is closed
    logprob: float = 0.0
    n_emitted: int = 0  # completion tokens of deltas that were given out
    text: str = ""
    is_cut: bool = False  # by a stop text
    finish: FinishReason | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    here: list[LogitPosition] = field(init=False)

    def __post_init__(self) -> None:
        self.here = [LogitPosition(self.sampler)]

    @property
    def tenant(self) -> str:
        return self.request.tenant

    @property
    def n_new(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def places(self) -> list[LogitPosition]:
        """The places where this step chooses a token: behind the last one and behind each drafted one."""
        if not self.draft:
            return self.here
        return [LogitPosition(self.sampler, self.draft[:n]) for n in range(len(self.draft) + 1)]

    def append_accepted(self, sampled: Sampled, begin: int) -> list[int]:
        """Append what the answer goes on with, of the tokens that were sampled at this sequence's positions (`begin`
        and following): the first one, and each further one as long as the drafted token before it is the one that was
        sampled there. Raises EngineFailed(nan_logits, bad_constraint), with what came before taken."""
        run: list[int] = []
        try:
            run.append(self._note(sampled, begin))
            for n, drafted in enumerate(self.draft):
                if self.finish is not None or run[n] != drafted:
                    break
                run.append(self._note(sampled, begin + n + 1))
        finally:
            self._end_step(run)
        return run

    def delta(self) -> Delta | None:
        """The text that has come since the last one, if that is text or the end."""
        if not self.text and self.finish is None:
            return None
        n_prompt = len(self.request.prompt)
        delta = Delta(
            text=self.text,
            token_ids=tuple(self.tokens[n_prompt + self.n_emitted :]),
            logprobs=tuple(self.logprobs),
            logprob=self.logprob,
            finish_reason=self.finish,
            counts=Counts(
                prompt_tokens=n_prompt,
                cached_tokens=self.n_reused,
                completion_tokens=self.n_new,
                drafted_tokens=self.n_drafted,
                accepted_tokens=self.n_accepted,
                steps=self.n_steps,
                by_source=self.by_source if self.drafter is None else self.drafter.counts,
            ),
        )
        self.n_emitted, self.text, self.logprobs = self.n_new, "", []
        return delta

    def _note(self, sampled: Sampled, at: int) -> int:
        """Append the token that was sampled at position `at`."""
        if not sampled.sound[at]:
            raise EngineFailed("The model's numbers for this request are not finite.", code="nan_logits")
        token, logprob = sampled.tokens[at], sampled.logprobs[at]
        ended = token in self.eos_ids
        is_complete = self.matcher is not None and self._is_complete(token, ended)
        self.tokens.append(token)
        self.logprob += logprob
        self.sampler.note(token)
        if self.request.top_logprobs is not None:
            self.logprobs.append(self._token_logprob(token, logprob, sampled.top[at]))
        if ended or is_complete:
            self.finish = FinishReason.STOP
        if self.request.stop and not ended:
            self._append_text([token])
        if self.finish is None and len(self.tokens) >= self.limit:
            self.finish = FinishReason.LENGTH
        return token

    def _is_complete(self, token: int, ended: bool) -> bool:
        """Say whether the constraint lets nothing follow `token`."""
        matcher: Any = self.matcher
        # a mask that became too complex lets the end alone pass, wherever the answer is
        if not (matcher.is_accepting() if ended else matcher.consume_token(token)):
            raise EngineFailed("The constraint became too complex for this answer.", code="bad_constraint")
        return bool(matcher.is_stopped())

    def _append_text(self, tokens: Sequence[int]) -> None:
        words = self.words.push(tokens[0]) if len(tokens) == 1 else self.words.push_run(tokens)
        piece, self.is_cut = self.stops.push(words)
        self.text += piece
        if self.is_cut:
            self.finish = FinishReason.STOP

    def _end_step(self, run: Sequence[int]) -> None:
        visible = run[:-1] if run and run[-1] in self.eos_ids else run
        if visible and not self.request.stop:
            self._append_text(visible)
        if self.finish is not None and not self.is_cut:
            piece, self.is_cut = self.stops.push(self.words.flush())
            self.text += piece + ("" if self.is_cut else self.stops.flush())
            self.finish = FinishReason.STOP if self.is_cut else self.finish
        self.n_steps += 1
        if self.draft:
            self.n_drafted += len(self.draft)
            self.n_accepted += n_agreed(run, self.draft)
        self.n_cached = len(self.tokens) - 1

    def _token_logprob(self, token: int, logprob: float, top: Sequence[tuple[int, float]]) -> TokenLogprob:
        return TokenLogprob(
            token=self.words.token(token),
            logprob=logprob,
            top=tuple((self.words.token(other), value) for other, value in top),
        )


def n_agreed(run: Sequence[int], draft: Sequence[int]) -> int:
    """Count the tokens that both begin with."""
    for n, (token, drafted) in enumerate(zip(run, draft, strict=False)):
        if token != drafted:
            return n
    return min(len(run), len(draft))


def sampler_of(request: GenerationRequest) -> Sampler:
    return Sampler(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        top_logprobs=request.top_logprobs,
        stream=np.random.Generator(np.random.PCG64(None if request.seed is None else request.seed % (1 << 64))),
    )
