"""Choosing tokens: the distribution that was asked for, from each row's own stream."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from gpu_runners.engine.sampling import LogitPosition, sample
from gpu_runners.engine.sequences import sampler_of
from gpu_runners.engine.sync import generate_all
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.protocol import GenerationRequest

Ask = Callable[..., GenerationRequest]
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -1.0, -3.0])


def drawn(n: int = 4000, **options: object) -> np.ndarray:
    """How often each token was chosen by one seeded row."""
    sampler = sampler_of(GenerationRequest(id="", prompt=(1,), max_new_tokens=1, seed=11, **options))  # type: ignore[arg-type]
    counts = np.zeros(len(LOGITS))
    for _ in range(n // 50):
        places = [LogitPosition(sampler, (0,) * ahead) for ahead in range(50)]
        for token in sample(LOGITS.repeat(50, 1), places, None).tokens:
            counts[token] += 1
            sampler.note(token)
    return counts


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"temperature": 1.0}, 7),
        ({"temperature": 0.6}, 7),
        ({"temperature": 1.0, "top_k": 3}, 3),
        ({"temperature": 1.3, "top_p": 0.8}, 4),
        ({"temperature": 1.0, "top_p": 0.0001}, 1),
        ({"temperature": 1.0, "top_k": 2, "top_p": 0.9}, 2),
    ],
)
def test_draws_follow_the_distribution(options: dict[str, float], kept: int) -> None:
    weights = torch.softmax(LOGITS.double() / options["temperature"], 0).numpy()
    weights[kept:] = 0
    counts = drawn(**options)
    assert counts[kept:].sum() == 0
    if kept > 1:
        assert chisquare(counts[:kept], counts.sum() * weights[:kept] / weights.sum()).pvalue > 1e-3


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    """Against a loop over the sorted distribution."""
    weights = torch.softmax(LOGITS.double(), 0).tolist()
    for top_p in (0.05, 0.3, 0.5, 0.7, 0.9, 0.97, 0.999):
        total, kept = 0.0, 0
        while total < top_p:
            total, kept = total + weights[kept], kept + 1
        assert (drawn(600, temperature=1.0, top_p=top_p)[kept:] == 0).all()


def test_a_mask_and_penalties_come_before_the_choice_and_are_in_the_logprob() -> None:
    request = GenerationRequest(
        id="", prompt=(1,), max_new_tokens=1, top_logprobs=2, frequency_penalty=1.0, presence_penalty=0.5
    )
    sampler = sampler_of(request)
    for token in (1, 1, 2):
        sampler.note(token)
    mask = torch.zeros((1, 7), dtype=torch.bool)
    mask[0, 0] = True
    chosen = sample(LOGITS[None].clone(), [LogitPosition(sampler)], mask)
    left = [-math.inf, 1.5 - 2.5, 1.0 - 1.5, 0.5, 0.0, -1.0, -3.0]
    norm = math.log(sum(math.exp(x) for x in left))
    assert chosen.tokens == [3]
    assert chosen.logprobs[0] == pytest.approx(0.5 - norm, abs=1e-5)
    assert [token for token, _ in chosen.top[0]] == [3, 4]


def test_the_same_seed_says_the_same_beside_anybody(engine: TorchEngine, ask: Ask) -> None:
    request = ask(temperature=1.2, top_p=0.95, seed=42, frequency_penalty=0.3)
    alone = generate_all(engine, [request])[0].text
    others = [ask("costs 3", temperature=1.5, seed=i) for i in range(7)]
    together = generate_all(engine, [*others[:3], request, *others[3:], request])
    assert together[3].text == together[8].text == alone
    assert generate_all(engine, [ask(temperature=1.2, top_p=0.95, seed=43, frequency_penalty=0.3)])[0].text != alone


def test_logprobs_of_an_answer_are_the_models(engine: TorchEngine, ask: Ask) -> None:
    """Against one plain forward pass over prompt and answer."""
    import asyncio

    from gpu_runners.models.causal_base import load_weights
    from gpu_runners.models.protocol import Delta

    request = ask(max_new_tokens=8, top_logprobs=3)

    async def read() -> list[Delta]:
        return [delta async for delta in engine.generate(request)]

    deltas = asyncio.run(read())
    ids = [token for delta in deltas for token in delta.token_ids]
    columns = [one for delta in deltas for one in delta.logprobs]
    with torch.inference_mode():
        logits = load_weights(engine.base)(torch.tensor([[*request.prompt, *ids]])).logits[0]
    expected = torch.log_softmax(logits[len(request.prompt) - 1 : -1].float(), -1)
    for row, token, one in zip(expected, ids, columns, strict=True):
        assert one.logprob == pytest.approx(float(row[token]), abs=1e-3)
        assert [value for _, value in one.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-3)
    assert deltas[-1].logprob == pytest.approx(sum(one.logprob for one in columns))
