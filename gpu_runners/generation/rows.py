"""One request on its way through the engine: what was asked, what has come, and when it ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_runners.generation.bank import Prepared
from gpu_runners.generation.mailbox import Mailbox
from gpu_runners.generation.protocol import Counts, Delta, EngineFailed, FinishReason, GenerationRequest, TokenLogprob
from gpu_runners.generation.sampling import Chooser
from gpu_runners.generation.text import Detokenizer, StopTexts


@dataclass(slots=True, eq=False)
class Row:
    """`tokens` are prompt and answer; of them `n_cached` have keys in the lane. `limit` is the longest they may get."""

    request: GenerationRequest
    adapter: Prepared | None
    matcher: Any | None
    chooser: Chooser
    words: Detokenizer
    stops: StopTexts
    eos_ids: frozenset[int]
    limit: int
    mailbox: Mailbox
    tokens: list[int]
    lane: Any = None
    slot: int = -1
    n_cached: int = 0
    reading: bool = True
    canceled: bool = False
    logprob: float = 0.0
    told: int = 0  # completion tokens of deltas that were given out
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def tenant(self) -> str:
        return self.request.tenant

    @property
    def cost(self) -> int:
        return self.limit

    @property
    def n_new(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    def take(self, token: int, logprob: float, top: Sequence[tuple[int, float]]) -> Delta | None:
        """The delta that this token makes, if it makes one. Raises EngineFailed(bad_constraint)."""
        self.tokens.append(token)
        self.logprob += logprob
        self.chooser.note(token)
        if self.request.top_logprobs is not None:
            self.logprobs.append(self._told(token, logprob, top))
        ended = token in self.eos_ids
        finish = FinishReason.STOP if ended else None
        if self.matcher is not None and not ended:
            self.matcher.consume_token(token)
            if self.matcher.is_error():
                raise EngineFailed("The constraint became too complex for this answer.", code="bad_constraint")
            if self.matcher.is_stopped():
                finish = FinishReason.STOP
        if not ended:
            piece, stopped = self.stops.push(self.words.push(token))
            self.text += piece
            finish = FinishReason.STOP if stopped else finish
            if stopped:
                return self._delta(finish)
        if finish is None and len(self.tokens) >= self.limit:
            finish = FinishReason.LENGTH
        if finish is not None:
            piece, stopped = self.stops.push(self.words.flush())
            self.text += piece + ("" if stopped else self.stops.flush())
            finish = FinishReason.STOP if stopped else finish
        return self._delta(finish) if self.text or finish is not None else None

    def _delta(self, finish: FinishReason | None) -> Delta:
        n_prompt = len(self.request.prompt)
        delta = Delta(
            text=self.text,
            token_ids=tuple(self.tokens[n_prompt + self.told :]),
            logprobs=tuple(self.logprobs),
            logprob=self.logprob,
            finish_reason=finish,
            counts=Counts(prompt_tokens=n_prompt, completion_tokens=self.n_new),
        )
        self.told, self.text, self.logprobs = self.n_new, "", []
        return delta

    def _told(self, token: int, logprob: float, top: Sequence[tuple[int, float]]) -> TokenLogprob:
        return TokenLogprob(
            token=self.words.token(token),
            logprob=logprob,
            top=tuple((self.words.token(other), value) for other, value in top),
        )


def chooser_of(request: GenerationRequest) -> Chooser:
    return Chooser(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        top_logprobs=request.top_logprobs,
        stream=np.random.Generator(np.random.PCG64(None if request.seed is None else request.seed % (1 << 64))),
    )
