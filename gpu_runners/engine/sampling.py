"""The way from logits to one token a place, all places of all rows at once.

Each row draws with the uniform numbers of its own seeded stream, one a token, by inverting the distribution of its
tokens: what stands beside it in the batch has no part in it. Nor have drafts: the tokens at the places behind drafted
tokens are chosen as if those were part of the answer, with the numbers that would be theirs, and whoever keeps a token
says so (`note`); a number whose token was not kept is used again.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

_LIKELY = 1024  # top_p hardly ever needs more tokens, and sorting 150,000 of them takes 10 ms a row
_AT_ONCE = 64  # places that are drawn for at a time: 1,000 of them over 150,000 tokens are 1.2 GB in float64


@dataclass(slots=True)
class Sampler:
    """One request's way of choosing. `counted` are how often each token was generated, where a penalty asks for it."""

    temperature: float
    top_p: float
    top_k: int
    frequency_penalty: float
    presence_penalty: float
    top_logprobs: int | None
    stream: np.random.Generator
    counted: dict[int, int] = field(default_factory=dict)
    _drawn: deque[float] = field(default_factory=deque)

    @property
    def penalises(self) -> bool:
        return bool(self.frequency_penalty or self.presence_penalty)

    def uniform(self, ahead: int) -> float:
        """The number of the token that comes after `ahead` more."""
        while len(self._drawn) <= ahead:
            self._drawn.append(float(self.stream.random()))
        return self._drawn[ahead]

    def note(self, token: int) -> None:
        """`token` is part of the answer."""
        if self._drawn:
            self._drawn.popleft()
        if self.penalises:
            self.counted[token] = self.counted.get(token, 0) + 1


@dataclass(frozen=True, slots=True)
class LogitPosition:
    """The place where a token is chosen: after the answer and the drafted tokens `ahead`."""

    sampler: Sampler
    ahead: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The choice at each place: the token, its log-prob, whether its logits were numbers, and the likeliest others
    where asked."""

    tokens: list[int]
    logprobs: list[float]
    sound: list[bool]
    top: list[list[tuple[int, float]]]


def sample(logits: torch.Tensor, places: Sequence[LogitPosition], mask: torch.Tensor | None) -> Sampled:
    """`logits` (n, V) of any float type; `mask` (n, V) bool, True where a token is forbidden. Log-probs are those of
    the distribution after mask and penalties, before temperature, top_p and top_k. One transfer from the device."""
    logits = logits.float()
    _penalise(logits, places)
    if mask is not None:
        logits.masked_fill_(mask, float("-inf"))
    norm = torch.logsumexp(logits, dim=-1)
    tokens = logits.argmax(dim=-1)
    drawn = [i for i, place in enumerate(places) if place.sampler.temperature > 0]
    for begin in range(0, len(drawn), _AT_ONCE):
        some = drawn[begin : begin + _AT_ONCE]
        rows = torch.tensor(some, device=logits.device)
        tokens[rows] = _draw(logits[rows], [places[i] for i in some])
    logprobs = logits.gather(1, tokens[:, None])[:, 0] - norm
    columns = torch.stack([tokens.double(), logprobs.double(), torch.isfinite(norm).double()]).tolist()
    return Sampled(
        tokens=[int(t) for t in columns[0]],
        logprobs=columns[1],
        sound=[bool(s) for s in columns[2]],
        top=_top(logits, norm, [place.sampler for place in places]),
    )


def _draw(logits: torch.Tensor, places: Sequence[LogitPosition]) -> torch.Tensor:
    """(n,) tokens of places with a temperature above 0."""
    samplers = [place.sampler for place in places]
    scaled = logits / _column([max(c.temperature, 1e-4) for c in samplers], logits).to(logits.dtype)
    scaled = torch.nan_to_num(scaled, nan=0.0, posinf=3e38, neginf=float("-inf"))
    uniform = _column([place.sampler.uniform(len(place.ahead)) for place in places], logits)
    if not any(c.top_p < 1 or c.top_k for c in samplers):
        return _invert(torch.softmax(scaled.double(), dim=-1), uniform)
    width = scaled.shape[1]
    narrow = max(c.top_k or (_LIKELY if c.top_p < 1 else width) for c in samplers)
    tokens, reached = _draw_best(scaled, samplers, uniform, min(narrow, width))
    for i in (~reached).nonzero()[:, 0].tolist():  # a flat distribution under top_p: all of it is needed
        tokens[i] = _draw_best(scaled[i : i + 1], samplers[i : i + 1], uniform[i : i + 1], width)[0][0]
    return tokens


def _draw_best(
    scaled: torch.Tensor, samplers: Sequence[Sampler], uniform: torch.Tensor, n_best: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(tokens, whether the `n_best` likeliest were enough to know that)."""
    best, ids = scaled.topk(n_best, dim=-1)
    weights = torch.exp(best.double() - torch.logsumexp(scaled.double(), dim=-1, keepdim=True))
    total = weights.cumsum(dim=-1)
    top_p = _column([c.top_p if c.top_p < 1 else 2.0 for c in samplers], scaled)
    top_k = _column([c.top_k or scaled.shape[1] for c in samplers], scaled)
    kept = (total - weights < top_p) & (torch.arange(n_best, device=scaled.device) < top_k)
    kept[:, 0] = True
    reached = (total[:, -1:] >= top_p) | (top_k <= n_best)
    chosen = ids.gather(1, _invert(weights * kept, uniform)[:, None])[:, 0]
    return chosen, reached[:, 0] | (n_best == scaled.shape[1])


def _invert(weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """(n,) the place where the running sum of `weights` (n, w) passes its share `uniform` (n, 1)."""
    total = weights.cumsum(dim=-1)
    at = torch.searchsorted(total, uniform * total[:, -1:], right=True)
    return at.clamp_(max=weights.shape[1] - 1)[:, 0]


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, device=like.device, dtype=torch.float64)[:, None]


def _penalise(logits: torch.Tensor, places: Sequence[LogitPosition]) -> None:
    """OpenAI's penalties: minus frequency times count, minus presence once."""
    for row, place in enumerate(places):
        sampler = place.sampler
        if not sampler.penalises or not (sampler.counted or place.ahead):
            continue
        counted = Counter(sampler.counted)
        counted.update(place.ahead)
        ids = torch.tensor(list(counted), device=logits.device)
        counts = torch.tensor(list(counted.values()), device=logits.device, dtype=logits.dtype)
        logits[row, ids] -= sampler.frequency_penalty * counts + sampler.presence_penalty


def _top(logits: torch.Tensor, norm: torch.Tensor, samplers: Sequence[Sampler]) -> list[list[tuple[int, float]]]:
    out: list[list[tuple[int, float]]] = [[] for _ in samplers]
    asked = [i for i, sampler in enumerate(samplers) if sampler.top_logprobs]
    if asked:
        most = max(samplers[i].top_logprobs or 0 for i in asked)
        rows = torch.tensor(asked, device=logits.device)
        values, ids = (logits[rows] - norm[rows, None]).topk(min(most, logits.shape[1]), dim=-1)
        for i, row_values, row_ids in zip(asked, values.tolist(), ids.tolist(), strict=True):
            n = samplers[i].top_logprobs
            pairs = zip(row_ids[:n], row_values[:n], strict=True)
            out[i] = [(token, value) for token, value in pairs if value != float("-inf")]
    return out
