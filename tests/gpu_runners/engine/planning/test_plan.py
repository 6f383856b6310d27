"""Which settings engines get, over a table of devices that nobody here has.

The table is golden: `python -m tests.gpu_runners.engine.planning.test_plan` writes it anew, and its diff is read.
"""

import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.engine.planning.base_facts import BaseFacts
from gpu_runners.engine.planning.devices import Device, DeviceKind, cpu
from gpu_runners.engine.planning.plan import GIB, EnginePlan, Needs, Speculation, plan
from gpu_runners.errors import JobFailed

GOLDEN = Path(__file__).parent / "golden" / "plans.json"


def gpu(name: str, gib: float, capability: tuple[int, int], count: int = 1) -> Device:
    return Device(
        kind=DeviceKind.CUDA,
        name=name,
        memory_bytes=int(gib * GIB),
        count=count,
        capability=capability,
        has_bf16=capability >= (8, 0),
    )


DEVICES = {
    "cpu": Device(kind=DeviceKind.CPU, name="cpu", memory_bytes=24 * GIB, has_bf16=True),
    "cpu-without-bf16": Device(kind=DeviceKind.CPU, name="cpu", memory_bytes=24 * GIB),
    "t4": gpu("Tesla T4", 15, (7, 5)),
    "a100-40": gpu("A100-40GB", 39.4, (8, 0)),
    "a100-80": gpu("A100-80GB", 79.2, (8, 0)),
    "l40s": gpu("L40S", 44.4, (8, 9)),
    "h100": gpu("H100", 79.2, (9, 0)),
    "h100-x4": gpu("H100", 79.2, (9, 0), 4),
    "h200": gpu("H200", 139.8, (9, 0)),
    "b200": gpu("B200", 178.4, (10, 0)),
}


def qwen(width: int, layers: int, heads: int, kv: int, inner: int, **more: Any) -> dict[str, Any]:
    """The fields of a Qwen2.5 config that planning reads."""
    return {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "intermediate_size": inner, "max_position_embeddings": 32768, **more,
    }  # fmt: skip


AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4}}
GPTQ = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
BASES = {
    "0.5b": BaseFacts.from_config("Qwen2.5-0.5B", qwen(896, 24, 14, 2, 4864), weight_bytes=988_097_824),
    "7b": BaseFacts.from_config("Qwen2.5-7B", qwen(3584, 28, 28, 4, 18944), weight_bytes=15_231_233_024),
    "7b-awq": BaseFacts.from_config("7B-AWQ", qwen(3584, 28, 28, 4, 18944, **AWQ), weight_bytes=5_570_000_000),
    "32b": BaseFacts.from_config("Qwen2.5-32B", qwen(5120, 64, 40, 8, 27648), weight_bytes=65_527_752_704),
    "32b-gptq": BaseFacts.from_config("32B-GPTQ", qwen(5120, 64, 40, 8, 27648, **GPTQ), weight_bytes=19_400_000_000),
}


def table() -> dict[str, Any]:
    out: dict[str, Any] = {}
    for device_name, device in DEVICES.items():
        for base_name, base in BASES.items():
            try:
                planned = plan(base, device, Needs())
                about = planned.about() | {"vllm": planned.vllm_arguments(), "environment": planned.vllm_environment()}
            except JobFailed as error:
                about = {"refused": error.code}
            out[f"{base_name} on {device_name}"] = about
    return out


def test_the_plans_are_those_of_the_golden_table() -> None:
    assert json.loads(json.dumps(table())) == json.loads(GOLDEN.read_text())


def of(base: str, device: str, **needs: Any) -> EnginePlan:
    return plan(BASES[base], DEVICES[device], Needs(**needs))


def test_fp8_keys_and_values_from_compute_capability_9_on() -> None:
    fp8 = {name for name in DEVICES if of("0.5b", name).kv_dtype == "fp8"}
    assert fp8 == {"h100", "h100-x4", "h200", "b200"}
    assert all(of("0.5b", name).vllm_arguments()["kv_cache_dtype"] == "auto" for name in DEVICES.keys() - fp8)
    assert any("9.0" in note for note in of("0.5b", "l40s").notes)


def test_a_t4_has_no_bfloat16() -> None:
    assert of("7b-awq", "t4").dtype == "float16"
    assert of("7b", "a100-40").dtype == "bfloat16"


def test_a_cpu_keeps_one_slot_empty_for_base_requests() -> None:
    assert of("0.5b", "cpu", slots=5).vllm_arguments()["max_loras"] == 6
    assert of("0.5b", "h100", slots=5).vllm_arguments()["max_loras"] == 5


def test_a_rank_is_rounded_up_to_one_that_vllm_has_kernels_for() -> None:
    assert [of("0.5b", "cpu", max_rank=r).vllm_arguments()["max_lora_rank"] for r in (4, 8, 9, 24)] == [8, 8, 16, 32]


def test_quantised_weights_are_run_as_they_were_shipped() -> None:
    planned = of("7b-awq", "t4")
    assert planned.quantization == "awq"
    assert "quantization" not in planned.vllm_arguments()
    assert of("32b-gptq", "a100-40").quantization == "gptq"


def test_a_base_that_leaves_no_room_is_refused_and_several_devices_make_room() -> None:
    with pytest.raises(JobFailed, match="AWQ build, a smaller base or more devices"):
        of("32b", "a100-40")
    assert of("32b", "h100-x4").tensor_parallel == 2
    assert of("0.5b", "h100-x4").tensor_parallel == 1


def test_drafts_that_would_change_answers_or_leak_are_left_out_and_it_is_said() -> None:
    on_cpu = of("0.5b", "cpu", speculation=Speculation.NGRAM)
    assert "speculative_config" not in on_cpu.vllm_arguments()
    assert "55005" in " ".join(on_cpu.notes)
    greedy = of("0.5b", "cpu", speculation=Speculation.NGRAM, greedy_only=True)
    assert greedy.vllm_arguments()["speculative_config"]["method"] == "ngram"
    shared = of("0.5b", "h100", speculation=Speculation.SUFFIX)
    assert shared.speculation is Speculation.NONE
    assert of("0.5b", "h100", speculation=Speculation.SUFFIX, single_tenant=True).speculation is Speculation.SUFFIX
    unpaired = of("7b", "h100", speculation=Speculation.DRAFT_MODEL)
    assert unpaired.speculation is Speculation.NONE


def test_recipes_are_drafted_from_on_every_device_whatever_the_temperature() -> None:
    """The hook mends what a CPU's sampling gets wrong beside drafts."""
    for name in DEVICES:
        planned = of("0.5b", name, speculation=Speculation.RECIPES)
        config = planned.vllm_arguments()["speculative_config"]
        assert config["method"] == "custom_class"
        assert callable(pkgutil.resolve_name(config["model"]))
        assert config["num_speculative_tokens"] == 16
        assert planned.max_batched_tokens >= planned.max_running * 17


def test_a_draft_model_is_named_by_its_folder_and_the_batch_has_room_for_its_drafts() -> None:
    planned = of("7b", "h100", speculation=Speculation.DRAFT_MODEL, draft="0.5b", draft_folder="/bases/0.5b")
    assert planned.vllm_arguments()["speculative_config"] == {
        "method": "draft_model", "model": "/bases/0.5b", "num_speculative_tokens": 5,
    }  # fmt: skip
    assert planned.max_batched_tokens >= planned.max_running * 6
    assert "/bases" not in json.dumps(planned.about())


@given(
    base=st.sampled_from(sorted(BASES)),
    device=st.sampled_from(sorted(DEVICES)),
    slots=st.integers(1, 64),
    rank=st.integers(1, 128),
    running=st.integers(1, 512),
)
def test_what_is_planned_fits(base: str, device: str, slots: int, rank: int, running: int) -> None:
    where, facts = DEVICES[device], BASES[base]
    try:
        planned = plan(facts, where, Needs(slots=slots, max_rank=rank, max_running=running))
    except JobFailed:
        return
    weights = facts.weight_bytes / planned.tensor_parallel
    assert weights + planned.kv_bytes <= where.memory_bytes
    assert planned.max_running <= running
    assert planned.max_model_len <= min(facts.context, planned.kv_tokens)
    assert planned.max_batched_tokens >= planned.max_running * (planned.draft_tokens + 1)
    assert facts.n_kv_heads % planned.tensor_parallel == 0


def test_this_machine_is_a_device() -> None:
    here = cpu()
    assert here.memory_bytes > GIB
    assert plan(BASES["0.5b"], here, Needs()).device is DeviceKind.CPU


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(table(), indent=1, sort_keys=True) + "\n")
