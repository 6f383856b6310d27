"""Whole distillations of a random base of two layers, on a task that it learns in seconds."""

import dataclasses
import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import deserialize

from backend.domain.jobs.blob_transfers import CHECKPOINT_MARK
from backend.domain.jobs.causal_jobs import CausalOptions, DistillCausalResult
from gpu_runners.distill.causal.batch import Batch
from gpu_runners.distill.causal.dataset import encode, read_rows, split
from gpu_runners.distill.causal.loading import load_frozen
from gpu_runners.distill.causal.net import CompletionNet
from gpu_runners.distill.causal.options import learning_rate_for
from gpu_runners.distill.causal.train import distill_causal
from gpu_runners.distill.checkpoint import Hooks, Snapshot, StepDone
from gpu_runners.errors import JobFailed, JobStopped
from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.device import Capabilities, ModelSize, choose, detect
from tests.gpu_runners.distill.causal.small_answers import (
    SYSTEM,
    Trained,
    jsonl,
    make_job,
    rows,
    with_adapter,
)
from tests.gpu_runners.distill.kept import Kept
from tests.gpu_runners.small_base import make_base, with_tokens_beyond

DATA = jsonl(rows())
CAN_QLORA = detect().device == "cuda" and "bitsandbytes" in detect().libraries
CPU = Capabilities(device="cpu", name="cpu", flex=True)
SMALL = ModelSize(n_parameters=1, hidden_size=1, n_layers=1)


@pytest.fixture(scope="module")
def trained(small_base: CausalBase) -> Trained:
    job = make_job(small_base, dropout=0.1)
    blob, result = distill_causal(job, DATA, base=small_base)
    return Trained(job=job, blob=blob, result=result)


def test_a_student_answers_and_stops_by_itself(small_base: CausalBase, tmp_path: Path) -> None:
    data = rows(60)
    blob, result = distill_causal(make_job(small_base, epochs=10, patience=0), jsonl(data), base=small_base)
    model = with_adapter(small_base, blob, result, tmp_path)
    n_right = 0
    for row in data[:6]:
        ids = torch.tensor([prompt_ids(small_base, SYSTEM, row["input"])])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False, pad_token_id=0
        )
        new = out[0, ids.shape[1] :].tolist()
        assert new[-1] == small_base.eos_ids[0], "it went on until it was cut off"
        n_right += small_base.tokenizer.decode(new[:-1]) == row["output"]
    assert n_right >= 5


def test_the_same_job_gives_the_same_bytes_and_another_seed_others(small_base: CausalBase, trained: Trained) -> None:
    blob, result = distill_causal(trained.job, DATA, base=small_base)
    assert blob == trained.blob
    assert result.training_log == trained.result.training_log
    assert distill_causal(make_job(small_base, dropout=0.1, seed=8, epochs=1), DATA, base=small_base)[0] != blob


def test_a_padding_token_without_a_row_is_not_what_batches_are_padded_with(tmp_path: Path) -> None:
    """As copies of Llama 2 have it: `<pad>` is the first number behind the vocabulary of the weights."""
    base = with_tokens_beyond(make_base(tmp_path / "small"), pad_token="<pad>")
    assert (base.tokenizer.pad_token_id, base.pad_id) == (base.vocab_size, base.eos_ids[0])
    blob, _ = distill_causal(make_job(base, epochs=1, batching="padded"), DATA, base=base)
    assert blob


@pytest.mark.parametrize("batching", ["shared_prefix", "packed", "bucketed", "padded"])
def test_every_batching_learns_the_same(small_base: CausalBase, batching: str) -> None:
    _, padded = distill_causal(make_job(small_base, batching="padded"), DATA, base=small_base)
    _, result = distill_causal(make_job(small_base, batching=batching), DATA, base=small_base)
    assert result.active["batching"] == batching
    for row, other in zip(result.training_log, padded.training_log, strict=True):
        for name in ("train_loss", "validation_loss"):
            assert row[name] == pytest.approx(other[name], rel=1e-3)
        assert row["n_tokens"] == other["n_tokens"]


@pytest.mark.parametrize("variant", ["lora", "rslora", "dora"])
def test_an_adapter_says_in_peft_what_was_trained(small_base: CausalBase, tmp_path: Path, variant: str) -> None:
    """The held-out loss of PEFT's logits, from the folder that engines load, is the trainer's own."""
    job = make_job(small_base, variant=variant, validation_share=0.3)
    blob, result = distill_causal(job, DATA, base=small_base)
    config = AdapterConfig.from_json(result.adapter_config)
    adapter = from_bytes(blob, config)
    assert bool(adapter.magnitude) == (variant == "dora")
    assert result.n_parameters == adapter.n_parameters
    assert config.target_modules == sorted({path.rpartition(".")[2] for path in adapter.lora})
    assert len(adapter.lora) == 2 * 7  # every linear layer, and not the output's
    lowest = min(row["validation_loss"] for row in result.training_log)
    of_what_ships = held_out_loss(small_base, rows(), blob, result, tmp_path)  # in bf16
    assert of_what_ships == pytest.approx(lowest, rel=2e-3)


def test_a_base_without_the_chosen_attention_trains_with_its_own_and_says_so(tmp_path: Path) -> None:
    """Gemma 2 caps the logits of its attention, which sdpa cannot."""
    base = make_base(tmp_path / "capped", kind="gemma2")
    model = load_frozen(base, choose(CausalOptions(attention="sdpa"), CPU, SMALL), device=torch.device("cpu"))
    assert model.config._attn_implementation == "eager"
    _, result = distill_causal(make_job(base, epochs=1, attention="sdpa"), jsonl(rows(6)), base=base)
    assert result.active["attention"] == "eager"
    assert ("sdpa", "eager") in [(note["wanted"], note["got"]) for note in result.active["fallbacks"]]


def held_out_loss(
    base: CausalBase, data: list[dict[str, Any]], blob: bytes, result: DistillCausalResult, folder: Path
) -> float:
    """By the definition, one example at a time, over those that the trainer held back."""
    model = with_adapter(base, blob, result, folder)
    encoded = encode(read_rows(jsonl(data)), base=base, system=SYSTEM, max_tokens=500)
    total, weight = 0.0, 0.0
    for example in split(encoded.examples, share=0.3, seed=7)[1]:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([example.ids]), use_cache=False).logits[0].double()
        log_probs = logits.log_softmax(-1)[example.n_prompt - 1 : -1]
        answer = torch.tensor(example.ids[example.n_prompt :])
        total -= example.weight * float(log_probs.gather(1, answer[:, None]).sum())
        weight += example.weight * len(answer)
    return total / weight


@pytest.mark.parametrize("stop_at", [1, 4])
def test_a_run_resumed_from_a_checkpoint_ends_with_the_same_bytes(
    small_base: CausalBase, trained: Trained, stop_at: int, tmp_path: Path
) -> None:
    saved = Kept(tmp_path)
    steps: list[StepDone] = []
    hooks = Hooks(on_step=steps.append, on_checkpoint=saved, should_stop=lambda: steps[-1].step == stop_at)
    with pytest.raises(JobStopped):
        distill_causal(trained.job, DATA, base=small_base, hooks=hooks)
    later: list[StepDone] = []
    blob, result = distill_causal(
        trained.job, DATA, base=small_base, resume=saved[-1], hooks=Hooks(on_step=later.append)
    )
    assert blob == trained.blob
    assert (later[0].step, result.resumed_from_step) == (stop_at + 1, stop_at)
    assert result.training_log == trained.result.training_log


@pytest.mark.skipif(torch.cuda.is_available(), reason="a fork cannot use the parent's CUDA")
def test_a_killed_run_goes_on_to_the_same_bytes(small_base: CausalBase, trained: Trained, tmp_path: Path) -> None:
    """kill -9 in the middle of a process of its own (a fork: a fresh one would import for ten seconds)."""
    job = dataclasses.replace(trained.job, checkpoint_every_s=0.0)
    child = os.fork()
    if child == 0:  # nothing of pytest may go on here, whatever happens
        try:
            hooks = Hooks(
                on_checkpoint=lambda state: 0 * state.write(tmp_path / "checkpoint"),  # as if it cost nothing
                on_step=_kill_at_4,
                clock=lambda: 0.0,
            )
            distill_causal(job, DATA, base=small_base, hooks=hooks)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    blob, result = distill_causal(job, DATA, base=small_base, resume=tmp_path / "checkpoint")
    assert result.resumed_from_step == 3
    assert blob == trained.blob


def _kill_at_4(done: StepDone) -> None:
    if done.step == 4:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("bytes_", [b"not a checkpoint", b"\x10\0\0\0\0\0\0\0{}"])
def test_bytes_that_are_no_checkpoint_start_afresh(
    small_base: CausalBase, trained: Trained, bytes_: bytes, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").write_bytes(bytes_)
    blob, result = distill_causal(trained.job, DATA, base=small_base, resume=tmp_path / "checkpoint")
    assert (blob, result.resumed_from_step) == (trained.blob, 0)


def test_checkpoints_come_by_the_clock_and_progress_at_every_step(small_base: CausalBase, tmp_path: Path) -> None:
    ticks = itertools.count()
    saved = Kept(tmp_path)
    steps: list[StepDone] = []
    hooks = Hooks(on_step=steps.append, on_checkpoint=saved, clock=lambda: float(next(ticks)))
    distill_causal(make_job(small_base, checkpoint_every_s=5.0), DATA, base=small_base, hooks=hooks)
    assert [step.step for step in steps] == list(range(1, steps[-1].n_steps + 1))
    assert 1 <= len(saved) < len(steps)
    assert steps[-1].eta_s == 0


def test_no_checkpoint_is_made_while_the_last_one_is_on_its_way(small_base: CausalBase) -> None:
    made: list[Snapshot] = []

    def on_checkpoint(state: Snapshot) -> int:
        made.append(state)
        return state.n_bytes

    hooks = Hooks(on_checkpoint=on_checkpoint, sent_s=lambda: None if made else 0.0, clock=lambda: 0.0)
    distill_causal(make_job(small_base, checkpoint_every_s=0.0), DATA, base=small_base, hooks=hooks)
    assert len(made) == 1


def test_an_adapter_is_in_bf16_and_a_checkpoint_keeps_the_whole_state(
    small_base: CausalBase, trained: Trained, tmp_path: Path
) -> None:
    """The best epoch is kept as it ships; what goes on training is kept in full."""
    assert {tensor["dtype"] for _, tensor in deserialize(trained.blob)} == {"BF16"}
    saved = Kept(tmp_path)
    steps: list[StepDone] = []
    hooks = Hooks(
        on_step=steps.append, on_checkpoint=saved, should_stop=lambda: steps[-1].step == steps[-1].n_steps // 2 + 1
    )
    with pytest.raises(JobStopped):
        distill_causal(trained.job, DATA, base=small_base, hooks=hooks)
    kinds: dict[str, set[str]] = {}
    for name, tensor in deserialize(saved[-1].read_bytes()):
        kinds.setdefault(name.partition(".")[0], set()).add(tensor["dtype"])
    assert kinds.pop("rng_cuda", {"U8"}) == {"U8"}
    assert kinds == {"param": {"F32"}, "opt": {"F32"}, "best": {"BF16"}, "rng": {"U8"}}
    assert saved[-1].read_bytes()[8:].startswith(CHECKPOINT_MARK)


def test_it_stops_where_the_held_out_loss_no_longer_falls_and_keeps_the_best(
    small_base: CausalBase, tmp_path: Path
) -> None:
    """Answers without any rule to learn: what is learnt of them by heart makes the held-out loss worse."""
    noise = [{"input": f"order {i} the", "output": str(i * 7919 % 1000 * 1234567), "weight": 1.0} for i in range(16)]
    job = make_job(small_base, epochs=60, patience=2, validation_share=0.3, learning_rate=0.02)
    blob, result = distill_causal(job, jsonl(noise), base=small_base)
    losses = [row["validation_loss"] for row in result.training_log]
    best = losses.index(min(losses)) + 1
    assert result.active["stopped_early"]
    assert (result.active["best_epoch"], len(losses)) == (best, best + 2)
    assert losses[-1] > 1.001 * min(losses)
    assert held_out_loss(small_base, noise, blob, result, tmp_path) == pytest.approx(min(losses), rel=2e-3)


def test_a_loss_that_is_no_number_ends_as_diverged(small_base: CausalBase, monkeypatch: pytest.MonkeyPatch) -> None:
    forward, steps = CompletionNet.forward, itertools.count()

    def broken(net: CompletionNet, batch: Batch) -> torch.Tensor:
        return forward(net, batch) * (float("nan") if net.training and next(steps) == 2 else 1.0)

    monkeypatch.setattr(CompletionNet, "forward", broken)
    with pytest.raises(JobFailed, match="nan at step 2") as failure:
        distill_causal(make_job(small_base, batching="padded"), DATA, base=small_base)
    assert failure.value.code == "diverged"


@pytest.fixture
def out_of_memory_at() -> Any:
    """The n-th embedding of a training batch raises what CUDA raises."""
    handles = []

    def arm(*times: int) -> None:
        count = itertools.count(1)

        def hook(module: torch.nn.Module, args: Any) -> None:
            if isinstance(module, torch.nn.Embedding) and torch.is_grad_enabled() and next(count) in times:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

        handles.append(torch.nn.modules.module.register_module_forward_pre_hook(hook))

    yield arm
    for handle in handles:
        handle.remove()


def test_out_of_memory_halves_the_batch_once_and_learns_the_same(
    small_base: CausalBase, out_of_memory_at: Callable[..., None]
) -> None:
    job = make_job(small_base, batching="packed")
    _, whole = distill_causal(job, DATA, base=small_base)
    out_of_memory_at(2)
    _, result = distill_causal(job, DATA, base=small_base)
    assert (whole.active["out_of_memory"], whole.active["recompute"]) == (None, False)
    assert result.active["recompute"] is True
    assert result.active["out_of_memory"] == {"step": 1, "parts": 2}
    for row, other in zip(result.training_log, whole.training_log, strict=True):
        assert row["train_loss"] == pytest.approx(other["train_loss"], rel=1e-3)


def test_a_run_that_ran_out_of_memory_goes_on_to_the_same_bytes(
    small_base: CausalBase, out_of_memory_at: Callable[..., None], tmp_path: Path
) -> None:
    job = make_job(small_base, dropout=0.1, batching="packed")
    out_of_memory_at(2)
    whole, _ = distill_causal(job, DATA, base=small_base)
    saved, steps = Kept(tmp_path), list[StepDone]()
    out_of_memory_at(2)
    hooks = Hooks(on_step=steps.append, on_checkpoint=saved, should_stop=lambda: steps[-1].step == 3)
    with pytest.raises(JobStopped):
        distill_causal(job, DATA, base=small_base, hooks=hooks)
    blob, result = distill_causal(job, DATA, base=small_base, resume=saved[-1])
    assert (blob, result.active["recompute"], result.resumed_from_step) == (whole, True, 3)


def test_out_of_memory_again_ends_the_job(small_base: CausalBase, out_of_memory_at: Callable[..., None]) -> None:
    out_of_memory_at(2, 3)
    with pytest.raises(JobFailed) as failure:
        distill_causal(make_job(small_base), DATA, base=small_base)
    assert (failure.value.code, failure.value.retryable) == ("out_of_memory", True)


def test_patches_come_first_and_are_told(small_base: CausalBase) -> None:
    job = make_job(small_base, epochs=4, patch_size=2, patch_share=0.5, batching="packed")
    _, result = distill_causal(job, DATA, base=small_base)
    assert [row["patch_size"] for row in result.training_log] == [2, 2, 1, 1]
    assert result.n_tokens == sum(row["n_tokens"] for row in result.training_log) > 0
    first, last = result.training_log[0], result.training_log[-1]
    assert first["n_tokens"] < 0.6 * last["n_tokens"]
    assert result.active["patches"]["size"] == 2
    assert result.active["best_epoch"] in (3, 4)


def test_what_was_active_is_read_from_what_ran(small_base: CausalBase, trained: Trained) -> None:
    active = trained.result.active
    assert (active["device"], active["attention"], active["optimizer"]) == (detect().device, "sdpa", "torch.AdamW")
    assert (active["kernels"], active["quantised_layers"], active["n_too_long"]) == ({}, 0, 0)
    assert active["trained_parameters"] == {"float32": trained.result.n_parameters}
    assert active["learning_rate"] == f"{learning_rate_for(64):.3g}"
    assert active["deterministic"]
    assert active["n_train"] + active["n_validation"] == trained.result.n_pairs
    text = json.dumps(active)
    assert not any(isinstance(value, float) for value in _leaves(json.loads(text))), "receipts sign whole numbers"


def _leaves(value: Any) -> Any:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one)
    else:
        yield value


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"rank": 0}, "invalid_options"),
        ({"rank": True}, "invalid_options"),
        ({"variant": "full"}, "invalid_options"),
        ({"learning_rate": float("nan")}, "invalid_options"),
        pytest.param(
            {"variant": "qlora"}, "not_on_this_device", marks=pytest.mark.skipif(CAN_QLORA, reason="it can be")
        ),
        ({"max_tokens": 8}, "nothing_to_train"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_its_code(
    small_base: CausalBase, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(JobFailed) as failure:
        distill_causal(make_job(small_base, **options), DATA, base=small_base)
    assert failure.value.code == code
    assert not failure.value.retryable


def test_rates_fall_with_the_width_to_that_of_qwen() -> None:
    rates = [learning_rate_for(width) for width in (64, 128, 512, 896, 3584)]
    assert rates == sorted(rates, reverse=True)
    assert rates[3] == rates[4] == 2e-4
