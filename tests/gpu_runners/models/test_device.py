"""What is switched on, over a table of devices. None of them is needed: `choose` is a function of values."""

import dataclasses

import pytest

from backend.domain.jobs.causal_jobs import CausalOptions
from gpu_runners.errors import JobFailed
from gpu_runners.models.device import Capabilities, Choice, ModelSize, choose, detect

GB = 1 << 30
ALL = {"liger": "0.8.5", "bitsandbytes": "0.50.2", "flash_attn": "2.8.3"}


def cuda(name: str, capability: tuple[int, int], gigabytes: int, **more: str) -> Capabilities:
    modern = capability >= (8, 0)
    return Capabilities(
        device="cuda",
        name=name,
        capability=capability,
        memory_bytes=gigabytes * GB,
        bf16=modern,
        flex=modern,
        libraries=ALL | more,
    )


CPU = Capabilities(device="cpu", name="cpu", flex=True)
T4, A100 = cuda("T4", (7, 5), 16), cuda("A100", (8, 0), 80)
L40S, L4, H100 = cuda("L40S", (8, 9), 48), cuda("L4", (8, 9), 24), cuda("H100", (9, 0), 80)
B200 = cuda("B200", (10, 0), 192, transformer_engine="2.9")
BARE_A100, BARE_L40S = dataclasses.replace(A100, libraries={}), dataclasses.replace(L40S, libraries={})
SMALL_WIDTHS = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 151_936,
}  # fmt: skip
LARGE_WIDTHS = {
    "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152_064,
}  # fmt: skip
SMALL = ModelSize(n_parameters=494_000_000, hidden_size=896, n_layers=24, n_outside=151_936 * 896, widths=SMALL_WIDTHS)
LARGE = ModelSize(
    n_parameters=7_616_000_000, hidden_size=3584, n_layers=28, n_outside=2 * 152_064 * 3584, widths=LARGE_WIDTHS
)

# device, size -> precision, attention, batching, row tokens, kernels, optimizer, recompute, what could not be had
GOLDEN = [
    (CPU, SMALL, "fp32 sdpa bucketed 256 plain adamw False", []),
    (T4, SMALL, "fp32 sdpa packed 1024 liger paged_adamw_8bit True", ["bf16", "flash_attention_2"]),
    (T4, LARGE, "fp32 sdpa packed 1024 liger paged_adamw_8bit True", ["bf16", "flash_attention_2"]),
    (A100, SMALL, "bf16 flash_attention_2 packed 0 plain adamw False", []),
    (A100, LARGE, "bf16 flash_attention_2 packed 0 plain adamw False", []),
    (L40S, SMALL, "bf16 flash_attention_2 packed 0 plain adamw False", []),
    (L40S, LARGE, "bf16 flash_attention_2 packed 0 liger paged_adamw_8bit True", []),
    (L4, LARGE, "bf16 flash_attention_2 packed 0 liger paged_adamw_8bit True", []),
    (H100, LARGE, "bf16 flash_attention_2 packed 0 plain adamw False", []),
    (B200, LARGE, "bf16 flash_attention_2 packed 0 plain adamw False", ["nvfp4"]),
    (BARE_A100, SMALL, "bf16 sdpa packed 1024 plain adamw False", ["flash_attention_2"]),
    (BARE_L40S, LARGE, "bf16 sdpa packed 1024 plain adamw True", ["flash_attention_2", "liger", "paged_adamw_8bit"]),
]


def told(choice: Choice) -> str:
    c = choice
    return f"{c.precision} {c.attention} {c.batching} {c.row_tokens} {c.kernels} {c.optimizer} {c.recompute}"


@pytest.mark.parametrize(("can", "size", "wanted", "missed"), GOLDEN)
def test_what_auto_means_on_a_device(can: Capabilities, size: ModelSize, wanted: str, missed: list[str]) -> None:
    choice = choose(CausalOptions(), can, size)
    assert told(choice) == wanted
    assert sorted(note.wanted for note in choice.fallbacks) == missed
    assert all(note.why and note.got for note in choice.fallbacks)


@pytest.mark.parametrize(
    ("can", "options", "field", "got"),
    [
        (CPU, {"kernels": "liger"}, "kernels", "plain"),
        (CPU, {"optimizer": "paged_adamw_8bit"}, "optimizer", "adamw"),
        (CPU, {"attention": "flash_attention_2"}, "attention", "sdpa"),
        (CPU, {"precision": "bf16"}, "precision", "fp32"),
        (T4, {"attention": "flex_attention"}, "attention", "sdpa"),
        (H100, {"precision": "fp32", "attention": "flash_attention_2"}, "attention", "sdpa"),
    ],
)
def test_what_is_asked_for_and_cannot_be_had_falls_back_with_its_reason(
    can: Capabilities, options: dict[str, str], field: str, got: str
) -> None:
    choice = choose(CausalOptions(**options), can, SMALL)
    assert getattr(choice, field) == got
    assert (options[field], got) in [(note.wanted, note.got) for note in choice.fallbacks]


@pytest.mark.parametrize(
    ("can", "options"),
    [
        (H100, {"attention": "sdpa", "kernels": "plain", "optimizer": "adamw", "precision": "fp32"}),
        (H100, {"attention": "flex_attention", "batching": "padded"}),
        (H100, {"kernels": "liger", "optimizer": "paged_adamw_8bit"}),
        (CPU, {"attention": "flex_attention", "batching": "packed"}),
    ],
)
def test_what_is_asked_for_and_can_be_had_is_taken(can: Capabilities, options: dict[str, str]) -> None:
    choice = choose(CausalOptions(**options), can, SMALL)
    assert {name: getattr(choice, name) for name in options} == options
    assert choice.fallbacks == ()


@pytest.mark.parametrize(
    ("can", "share", "batching"),
    [(CPU, 0.9, "shared_prefix"), (CPU, 0.1, "bucketed"), (BARE_A100, 0.2, "shared_prefix"), (H100, 0.9, "packed")],
)
def test_a_long_common_prefix_is_shared_where_attention_is_dense(
    can: Capabilities, share: float, batching: str
) -> None:
    assert choose(CausalOptions(), can, SMALL, shared_share=share).batching == batching


def test_kernels_of_variable_length_cannot_share_a_prefix() -> None:
    choice = choose(CausalOptions(batching="shared_prefix"), H100, SMALL, shared_share=0.9)
    assert (choice.batching, [note.wanted for note in choice.fallbacks]) == ("packed", ["shared_prefix"])


def test_qlora_needs_cuda_and_bitsandbytes_and_says_which_is_missing() -> None:
    options = CausalOptions(variant="qlora")
    assert choose(options, H100, LARGE).quantised
    assert choose(options, L4, LARGE).recompute
    assert not choose(options, H100, LARGE).recompute
    for can, missing in ((CPU, "no CUDA device"), (BARE_A100, "lacks bitsandbytes")):
        with pytest.raises(JobFailed, match=missing) as failure:
            choose(options, can, LARGE)
        assert failure.value.code == "not_on_this_device"


def test_what_4_bits_leave_whole_counts_in_full() -> None:
    """Embedding and output layer of Qwen2.5-7B are 4.4 GB in float32: with all in 4 bits, 256 tokens would be kept."""
    options = CausalOptions(variant="qlora", tokens_per_step=256, max_tokens=256)
    can = dataclasses.replace(L4, memory_bytes=12 * GB)
    assert choose(options, can, LARGE).recompute
    assert not choose(options, can, dataclasses.replace(LARGE, n_outside=0)).recompute


def test_a_base_of_an_unknown_kind_is_weighed_by_its_width() -> None:
    unknown = dataclasses.replace(LARGE, widths={})
    assert choose(CausalOptions(), L4, unknown).recompute
    assert not choose(CausalOptions(), A100, unknown).recompute


def test_this_machine_can_be_described() -> None:
    can = detect()
    assert can.device in ("cpu", "cuda")
    assert (can.capability > (0, 0)) is (can.device == "cuda")
    assert not can.nvfp4 or can.capability >= (10, 0)
