"""The engine against transformers' own `generate`, and against itself with other company in the batch."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_runners.engine.model_runner import ModelRunner
from gpu_runners.engine.sync import generate_all, read_to_end
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase, load_weights
from gpu_runners.models.device import detect
from gpu_runners.models.protocol import (
    AdapterRef,
    Delta,
    EngineFailed,
    FinishReason,
    GenerationRequest,
    Overloaded,
    Rejected,
)
from tests.gpu_runners.engine.conftest import PROMPTS
from tests.gpu_runners.small_base import CONTEXT, make_adapter

Ask = Callable[..., GenerationRequest]


def texts(engine: TorchEngine, requests: list[GenerationRequest]) -> list[str]:
    return [answer.text for answer in generate_all(engine, requests)]


@pytest.mark.parametrize("kind", ["base", "qwen"])
def test_a_full_batch_says_what_transformers_says_one_by_one(kind: str, request: pytest.FixtureRequest) -> None:
    base: CausalBase = request.getfixturevalue(kind)
    prompts = [base.tokenizer(text)["input_ids"] for text in PROMPTS]
    model = load_weights(base)
    expected = []
    for prompt in prompts:
        out = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, pad_token_id=0)
        expected.append(base.tokenizer.decode(out[0][len(prompt) :], skip_special_tokens=True))
    engine = TorchEngine(base, max_running=4, chunk=16)  # fewer places than requests, prompts in several chunks
    try:
        asked = [GenerationRequest(id=str(i), prompt=tuple(p), max_new_tokens=24) for i, p in enumerate(prompts * 2)]
        assert texts(engine, asked) == expected * 2
        assert len(set(expected)) == len(expected)
    finally:
        engine.stop()


def test_greedy_answers_do_not_depend_on_the_company(engine: TorchEngine, ask: Ask, adapters: list[AdapterRef]) -> None:
    mixed = [ask(text, adapter=adapter) for text in PROMPTS[:2] for adapter in (None, *adapters[:6])]
    alone = [generate_all(engine, [request])[0].text for request in mixed]
    assert texts(engine, mixed) == alone
    assert len(set(alone)) > 0.8 * len(alone)  # seven models on two prompts: the adapters do change what is said


def test_a_base_row_gets_the_very_same_logits_beside_any_adapter(
    base: CausalBase, adapters: list[AdapterRef], tmp_path: Path
) -> None:
    """Bit by bit: the same batch with and without an adapter in its other row."""
    engine = TorchEngine(base, max_running=2)
    engine.stop()
    runner, lora, shelf = engine._runner, engine._lora, engine._shelf
    wild = make_adapter(base, tmp_path / "wild", number=99)
    noisy = shelf.get(wild)
    for a, _ in noisy.pairs.values():
        a.fill_(3e38)  # overflows to infinity inside
    with torch.inference_mode():
        alone = _layer_outputs(runner, lora, [None, None], None)
        for adapter in (shelf.get(adapters[0]), noisy):
            beside = _layer_outputs(runner, lora, [None, adapter.key], adapter)
            assert torch.equal(alone[0], beside[0])
            assert not torch.equal(alone[1], beside[1])


def _layer_outputs(runner: ModelRunner, lora: object, keys: list[str | None], adapter: object) -> torch.Tensor:
    from gpu_runners.engine.sequences import TokenSequence

    pools = runner.pools(budget=128, longest=64, max_sequences=2)
    sequences = []
    for key in keys:
        sequence = TokenSequence.__new__(TokenSequence)
        sequence.tokens, sequence.n_cached, sequence.reading, sequence.draft = [5, 9, 17, 33], 0, True, []
        sequence.adapter = adapter if key else None  # type: ignore[assignment]
        if sequence.adapter is not None:
            assert lora.pin(sequence.adapter)  # type: ignore[attr-defined]
        pools.add(sequence, 8)
        sequences.append(sequence)
    _, logits = runner.forward(pools, [(sequence, 4) for sequence in sequences], lora)  # type: ignore[arg-type]
    return logits


@pytest.mark.parametrize("variant", ["lora", "rslora", "dora"])
def test_an_adapter_in_the_bank_says_what_it_says_merged(
    base: CausalBase, ask: Ask, tmp_path: Path, variant: str
) -> None:
    ref = make_adapter(base, tmp_path / variant, number=7, variant=variant)
    merged = TorchEngine(base, merged=ref.folder)
    banked = TorchEngine(base, n_slots=2)
    try:
        expected = texts(merged, [ask(text) for text in PROMPTS])
        assert texts(banked, [ask(text, adapter=ref) for text in PROMPTS]) == expected
        bare = texts(banked, [ask(text) for text in PROMPTS])
        assert bare != expected
        together = [ask(text, adapter=one) for text in PROMPTS for one in (ref, None)]
        assert texts(banked, together) == [t for pair in zip(expected, bare, strict=True) for t in pair]
        with pytest.raises(Rejected, match="merged"):
            generate_all(merged, [ask(adapter=ref)])
    finally:
        merged.stop()
        banked.stop()


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # in peft 0.21
def test_peft_agrees_with_the_bank(base: CausalBase, ask: Ask, adapters: list[AdapterRef], engine: TorchEngine) -> None:
    from peft import PeftModel

    model = PeftModel.from_pretrained(load_weights(base), str(adapters[0].folder))
    request = ask(PROMPTS[1], adapter=adapters[0])
    out = model.generate(input_ids=torch.tensor([request.prompt]), max_new_tokens=24, do_sample=False, pad_token_id=0)
    expected = base.tokenizer.decode(out[0][len(request.prompt) :], skip_special_tokens=True)
    assert texts(engine, [request]) == [expected]


def test_more_adapters_than_slots_take_turns(base: CausalBase, ask: Ask, adapters: list[AdapterRef]) -> None:
    engine = TorchEngine(base, max_running=4, n_slots=2)
    try:
        asked = [ask(PROMPTS[i % 3], adapter=adapters[i % 8]) for i in range(24)]
        alone = [generate_all(engine, [request])[0].text for request in asked[:8]]
        assert texts(engine, asked)[:8] == alone
        counters = engine.counters()
        assert counters["adapter_loads"] - counters["adapter_evictions"] == 2
        assert counters["adapter_evictions"] > 6
        asyncio.run(engine.forget(adapters[0].key))
        loads = engine.counters()["adapter_loads"]
        generate_all(engine, [ask(adapter=adapters[0])])
        assert engine.counters()["adapter_loads"] == loads + 1
    finally:
        engine.stop()


def test_an_adapter_of_another_base_is_refused(base: CausalBase, ask: Ask, engine: TorchEngine, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    def broken(name: str, change: Callable[[dict[str, np.ndarray]], object]) -> AdapterRef:
        ref = make_adapter(base, tmp_path / name, number=50)
        tensors = load_file(ref.folder / "adapter_model.safetensors")
        change(tensors)
        save_file(tensors, ref.folder / "adapter_model.safetensors")
        return AdapterRef(key=name, folder=ref.folder, number=50)

    first = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    for name, change, words in (
        ("wide", lambda t: t.update({first: np.zeros((4, 65), np.float32)}), "is .*65"),
        ("deep", lambda t: t.update({first.replace("layers.0", "layers.9"): t.pop(first)}), "no layer"),
        ("half", lambda t: t.pop(first), "whole LoRA pair"),
        ("nan", lambda t: t[first].fill(np.nan), "not finite"),
    ):
        with pytest.raises(Rejected, match=words) as caught:
            generate_all(engine, [ask(adapter=broken(name, change))])
        assert caught.value.code == "bad_adapter"
    with pytest.raises(Rejected, match="cannot be read"):
        generate_all(engine, [ask(adapter=AdapterRef(key="none", folder=tmp_path / "none", number=1))])


def test_limits_of_length_and_context(engine: TorchEngine, ask: Ask) -> None:
    one = generate_all(engine, [ask(max_new_tokens=1)])[0]
    assert (one.counts.completion_tokens, one.finish_reason) == (1, FinishReason.LENGTH)
    full = ask(prompt=(7,) * (CONTEXT - 3), max_new_tokens=100)
    filled = generate_all(engine, [full])[0]
    assert filled.counts.completion_tokens <= 3
    with pytest.raises(Rejected, match=f"{CONTEXT} tokens.*context has\\s+{CONTEXT}") as caught:
        generate_all(engine, [ask(prompt=(7,) * CONTEXT)])
    assert caught.value.code == "context_too_long"
    for wrong in (ask(prompt=()), ask(prompt=(10**6,)), ask(max_new_tokens=0)):
        with pytest.raises(Rejected):
            generate_all(engine, [wrong])


async def counted(engine: TorchEngine, name: str, n: int) -> None:
    """Wait until so many are counted: a request is taken, and its place free again, by another thread."""
    deadline = time.monotonic() + 30
    while engine.counters()[name] != n:
        assert time.monotonic() < deadline, engine.counters()
        await asyncio.sleep(0.005)


def test_a_closed_iterator_gives_its_place_to_the_next(base: CausalBase, ask: Ask) -> None:
    engine = TorchEngine(base, max_running=1, max_waiting=1)

    async def main() -> tuple[Delta, str]:
        long = engine.generate(ask(max_new_tokens=400, prompt=(9,) * 30))
        first = await anext(long)
        second = asyncio.create_task(read_to_end(engine, ask()))
        await counted(engine, "waiting", 1)
        with pytest.raises(Overloaded) as full:
            await anext(engine.generate(ask()))
        assert full.value.retry_after_s >= 1
        await long.aclose()  # type: ignore[attr-defined]
        return first, (await asyncio.wait_for(second, 20)).text

    try:
        expected = texts(engine, [ask()])[0]
        before = engine.counters()
        first, text = asyncio.run(main())
        assert text == expected
        asyncio.run(counted(engine, "running", 0))
        counters = engine.counters()
        assert counters["canceled"] == 1
        assert counters["waiting"] == 0
        received = first.counts.completion_tokens + before["completion_tokens"]
        assert counters["completion_tokens"] == received + before["completion_tokens"]
    finally:
        engine.stop()


def test_a_reader_that_leaves_while_it_waits_is_not_run(base: CausalBase, ask: Ask) -> None:
    engine = TorchEngine(base, max_running=1, max_waiting=4)

    async def main() -> None:
        running = asyncio.create_task(read_to_end(engine, ask(max_new_tokens=400, prompt=(9,) * 30)))
        await counted(engine, "running", 1)
        waiting = asyncio.create_task(read_to_end(engine, ask()))
        await counted(engine, "waiting", 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert engine.counters()["waiting"] == 0
        await running

    try:
        asyncio.run(main())
        assert engine.counters()["canceled"] == 1
    finally:
        engine.stop()


def test_counters_are_what_readers_received(base: CausalBase, ask: Ask) -> None:
    engine = TorchEngine(base, max_running=4)
    try:
        answers = generate_all(engine, [ask(text, temperature=1.0, seed=i) for i, text in enumerate(PROMPTS * 3)])
        counters = engine.counters()
        assert counters["prompt_tokens"] == sum(answer.counts.prompt_tokens for answer in answers)
        assert counters["completion_tokens"] == sum(answer.counts.completion_tokens for answer in answers)
        assert (counters["requests"], counters["canceled"], counters["failed"]) == (15, 0, 0)
    finally:
        engine.stop()


def test_a_thousand_requests_are_bounded_and_answered(base: CausalBase, ask: Ask) -> None:
    engine = TorchEngine(base, max_running=16, max_waiting=600)

    async def main() -> list[object]:
        asked = [read_to_end(engine, ask(max_new_tokens=2, tenant=f"t{i % 7}")) for i in range(1000)]
        return await asyncio.gather(*asked, return_exceptions=True)

    try:
        outcomes = asyncio.run(main())
        refused = [one for one in outcomes if isinstance(one, Overloaded)]
        answered = [one for one in outcomes if getattr(one, "finish_reason", None)]
        assert len(refused) + len(answered) == 1000
        assert len(refused) > 0
        assert len(answered) >= 600
        asyncio.run(counted(engine, "running", 0))
        counters = engine.counters()
        assert (counters["requests"], counters["waiting"], counters["running"]) == (len(answered), 0, 0)
    finally:
        engine.stop()


def test_a_row_whose_numbers_break_fails_alone(base: CausalBase, ask: Ask, adapters: list[AdapterRef]) -> None:
    engine = TorchEngine(base, max_running=4)
    try:
        poisoned = engine._shelf.get(adapters[0])
        for _, b in poisoned.pairs.values():
            b.fill_(float("nan"))

        async def main() -> list[object]:
            asked = [read_to_end(engine, ask(adapter=adapters[0])), read_to_end(engine, ask(adapter=adapters[1]))]
            return await asyncio.gather(*asked, return_exceptions=True)

        expected = texts(engine, [ask(adapter=adapters[1])])[0]
        broken, sound = asyncio.run(main())
        assert isinstance(broken, EngineFailed)
        assert broken.code == "nan_logits"
        assert getattr(sound, "text", None) == expected
    finally:
        engine.stop()


def test_out_of_memory_halves_the_batch_once_and_loses_nothing(
    base: CausalBase, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is out of memory whenever more than four rows are in a step: four steps after the start."""
    engine = TorchEngine(base, max_running=8)
    asked = [ask(text, temperature=0.7, seed=3, max_new_tokens=12) for text in PROMPTS] + [ask()] * 3
    try:
        expected = texts(engine, asked)
        forward, steps = engine._runner.forward, iter(range(10**6))

        def small(pools: object, chunks: object, lora: object) -> object:
            if next(steps) > 4 and sum(len(pool.sequences) for pool in pools.by_capacity.values()) > 4:  # type: ignore[attr-defined]
                raise torch.OutOfMemoryError("CUDA out of memory")
            return forward(pools, chunks, lora)  # type: ignore[arg-type]

        monkeypatch.setattr(engine._runner, "forward", small)
        assert texts(engine, asked) == expected
        assert engine.counters()["out_of_memory_halvings"] == 1
        assert engine.about["max_running"] == 4
    finally:
        engine.stop()


def test_an_architecture_with_another_attention_is_refused(base: CausalBase, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    rotate = modeling_llama.apply_rotary_pos_emb
    calls = iter(range(10**6))

    def other(q: torch.Tensor, k: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k = rotate(q, k, *rest)
        return (q if next(calls) < 2 else q * 1.5), k

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", other)
    with pytest.raises(JobFailed, match="does more than ours"):
        TorchEngine(base)


def test_a_stopped_engine_says_so(base: CausalBase, ask: Ask) -> None:
    engine = TorchEngine(base)

    async def main() -> None:
        running = asyncio.create_task(read_to_end(engine, ask(max_new_tokens=400, prompt=(9,) * 40)))
        await counted(engine, "running", 1)
        await engine.close()
        with pytest.raises(EngineFailed, match="stopped"):
            await running
        with pytest.raises(EngineFailed, match="stopped"):
            await read_to_end(engine, ask())

    asyncio.run(main())


def test_about_is_json(engine: TorchEngine) -> None:
    about = json.loads(json.dumps(dict(engine.about)))
    assert about["name"] == "kolm-torch"
    assert about["device"] == detect().device
    assert about["dtype"] == ("float32" if about["device"] == "cpu" else "bfloat16")
