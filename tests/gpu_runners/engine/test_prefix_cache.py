"""What prompts begin with alike is read once, for its owner alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpu_runners.engine.sync import Finished, generate_all
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.protocol import AdapterRef, GenerationRequest

Ask = Callable[..., GenerationRequest]
HEAD = "the order of tea and coffee costs 3 and the order of 12 costs 4 and "


@pytest.fixture
def fresh(base: CausalBase) -> Iterator[TorchEngine]:
    engine = TorchEngine(base, max_running=4, chunk=32)
    yield engine
    engine.stop()


def one_by_one(engine: TorchEngine, requests: list[GenerationRequest]) -> list[Finished]:
    return [generate_all(engine, [request])[0] for request in requests]


def cached(answers: list[Finished]) -> list[int]:
    return [answer.counts.cached_tokens for answer in answers]


def test_the_third_prompt_begins_where_the_first_two_part_and_says_the_same(
    base: CausalBase, fresh: TorchEngine, ask: Ask
) -> None:
    requests = [ask(HEAD + end) for end in ("tea", "coffee", "order", "costs 3", "order")]
    answers = one_by_one(fresh, requests)
    n_head = len(ask(HEAD).prompt)
    assert cached(answers)[:2] == [0, 0]
    assert all(
        n_head - 2 <= n < len(request.prompt) for n, request in zip(cached(answers)[2:], requests[2:], strict=True)
    )
    assert fresh.counters()["cached_tokens"] == sum(cached(answers))
    for request, answer in zip(requests, answers, strict=True):
        alone = TorchEngine(base, max_running=4, chunk=32)
        try:
            (expected,) = generate_all(alone, [request])
        finally:
            alone.stop()
        assert (answer.text, expected.counts.cached_tokens) == (expected.text, 0)


def test_many_at_once_say_what_they_say_alone(engine: TorchEngine, ask: Ask) -> None:
    requests = [ask(HEAD + str(n), tenant="at once") for n in range(24)]
    together = generate_all(engine, requests)
    assert max(cached(together)) > 0
    alone = one_by_one(engine, [replace(request, cache_salt=request.id + str(n)) for n, request in enumerate(requests)])
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert cached(alone) == [0] * len(alone)


@pytest.mark.parametrize(
    "other", [{"tenant": "b"}, {"cache_salt": "b"}, {"adapter": 0}], ids=lambda one: next(iter(one))
)
def test_nobody_else_finds_out_what_was_read(
    fresh: TorchEngine, ask: Ask, adapters: list[AdapterRef], other: dict[str, Any]
) -> None:
    if "adapter" in other:
        other = {"adapter": adapters[other["adapter"]]}
    one_by_one(fresh, [ask(HEAD + end) for end in ("tea", "coffee")])
    assert cached(one_by_one(fresh, [ask(HEAD + end, **other) for end in ("tea", "coffee")])) == [0, 0]


async def _forget(engine: TorchEngine, key: str) -> None:
    await engine.forget(key)


def test_what_was_read_with_an_adapter_is_forgotten_with_it(
    fresh: TorchEngine, ask: Ask, adapters: list[AdapterRef]
) -> None:
    import asyncio

    requests = [ask(HEAD + end, adapter=adapters[0]) for end in ("tea", "coffee", "order")]
    assert cached(one_by_one(fresh, requests))[2] > 0
    asyncio.run(_forget(fresh, adapters[0].key))
    assert cached(one_by_one(fresh, requests))[:2] == [0, 0]


def test_the_room_for_prefixes_is_an_eighth_and_who_was_away_longest_leaves(base: CausalBase, ask: Ask) -> None:
    n_head = len(ask(HEAD).prompt)
    engine = TorchEngine(base, max_running=2, chunk=32, kv_tokens=8 * (n_head + n_head // 2))
    try:
        for tenant in ("a", "b"):
            one_by_one(engine, [ask(HEAD + end, tenant=tenant) for end in ("tea", "coffee")])
            assert engine._scheduler.prefixes.n_tokens <= n_head + n_head // 2
        assert cached(one_by_one(engine, [ask(HEAD + "order", tenant=tenant) for tenant in ("b", "a")])) != [0, 0]
        assert cached(one_by_one(engine, [ask(HEAD + "3", tenant="b")])) != [0]
    finally:
        engine.stop()
