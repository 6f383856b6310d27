"""The memory of a training as it is foretold, beside what trainings took (docs/benchmarks/sizes.md)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.planning.training_memory import PROCESS_BYTES, Device, least_bytes, most_tokens, step_bytes

TINY = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1024,
}  # fmt: skip
CPU, L4 = Device(is_cuda=False, has_bf16=False), Device(is_cuda=True, has_bf16=True)
# tokens of the largest batch, and the most that the process had of its own, MB
GEMMA = {
    "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262_144,
}  # fmt: skip
MEASURED = [
    (TINY, 1_114_752, 97_280, 133, 355),
    (TINY, 1_114_752, 97_280, 931, 448),
    (TINY, 1_114_752, 97_280, 3_672, 780),
    (GEMMA, 268_098_176, 1_898_496, 450, 2_495),
    (GEMMA, 268_098_176, 1_898_496, 1_092, 4_114),
]


@pytest.mark.parametrize(("config", "weights", "trained", "tokens", "took_mb"), MEASURED)
def test_what_trainings_took_is_foretold_to_within_a_fifth(config, weights, trained, tokens, took_mb) -> None:
    """Before, the tiny base was foretold 6 MB and took 355, Gemma 1.1 GB and took 4.1: what is promised must not run
    out of memory."""
    least = least_bytes(weights, trained, CPU, variant="lora", precision="auto")
    total = (least + step_bytes(config, tokens, answer_share=0.1)) / 1e6
    assert total == pytest.approx(took_mb, rel=0.2)


def test_on_a_gpu_the_process_is_elsewhere_and_weights_have_half_the_bytes() -> None:
    n = 1_000_000_000
    assert least_bytes(n, 0, CPU, variant="lora", precision="auto") == 4 * n + PROCESS_BYTES
    assert least_bytes(n, 0, L4, variant="lora", precision="auto") == 2 * n
    assert least_bytes(n, 0, L4, variant="lora", precision="fp32") == 4 * n
    assert least_bytes(n, 0, L4, variant="qlora", precision="auto") == 550_000_000


def test_qlora_leaves_embedding_and_output_layer_whole() -> None:
    """Qwen2.5-7B: 6.5 billion weights in 4 bits, 1.1 billion in float32."""
    config = {
        "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152_064,
    }  # fmt: skip
    took = least_bytes(7_615_616_512, 0, L4, variant="qlora", precision="auto", config=config)
    assert took == pytest.approx(7.95e9, rel=0.01)


@given(st.integers(0, 10**11))
def test_the_tokens_that_fit_fit_and_64_more_do_not(room: int) -> None:
    tokens = most_tokens(TINY, room, answer_share=0.25)
    assert tokens == 0 or step_bytes(TINY, tokens, answer_share=0.25) <= room
    assert tokens == 1 << 20 or step_bytes(TINY, tokens + 64, answer_share=0.25) > room
