"""Sizes from a config alone, beside those of the production audit (which were a trainer's) and of real files."""

import pytest

from backend.domain.planning.adapter_sizes import adapter_bytes, checkpoint_bytes, linear_shapes, lora_parameters

QWEN_05B = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2,
}  # fmt: skip
QWEN_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4,
}  # fmt: skip
QWEN_14B = {
    "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40,
    "num_key_value_heads": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "rank", "millions"),
    [(QWEN_05B, 8, 4.4), (QWEN_05B, 32, 17.6), (QWEN_7B, 8, 20.2), (QWEN_7B, 16, 40.4), (QWEN_14B, 16, 68.8)],
)
def test_the_weights_are_those_that_a_trainer_counted(config, rank, millions):
    assert lora_parameters(config, rank=rank) / 1e6 == pytest.approx(millions, abs=0.05)


def test_qwen_7b_at_rank_8_has_20_185_088_weights():
    assert lora_parameters(QWEN_7B, rank=8) == 20_185_088


@pytest.mark.parametrize("variant", ["lora", "rslora", "qlora", "dora"])
@pytest.mark.parametrize("rank", [1, 8, 64])
def test_an_adapter_has_two_bytes_a_weight_and_a_checkpoint_fourteen(rank, variant):
    n = lora_parameters(QWEN_7B, rank=rank)
    vectors = 28 * sum(n_out for _, n_out in linear_shapes(QWEN_7B).values()) if variant == "dora" else 0
    header = 28 * 7 * 3 * 128 * 5
    assert 0 < adapter_bytes(QWEN_7B, rank=rank, variant=variant) - (2 * n + 4 * vectors) <= header
    assert 0 < checkpoint_bytes(QWEN_7B, rank=rank, variant=variant) - (14 * n + 16 * vectors) <= header
    first = checkpoint_bytes(QWEN_7B, rank=rank, variant=variant, has_best=False)
    assert 0 < first - (12 * n + 12 * vectors) <= header


def test_moments_of_one_byte_make_it_smaller():
    n = lora_parameters(QWEN_7B, rank=32)
    small = checkpoint_bytes(QWEN_7B, rank=32, optimizer="paged_adamw_8bit")
    assert small == pytest.approx(8 * n, rel=0.01)
    with pytest.raises(KeyError):
        checkpoint_bytes(QWEN_7B, rank=32, optimizer="sgd")


def test_a_head_of_its_own_width_is_read():
    wide = QWEN_7B | {"head_dim": 256}
    assert linear_shapes(wide)["q_proj"] == (3584, 28 * 256)
    assert linear_shapes(wide)["k_proj"] == (3584, 4 * 256)


def test_a_config_of_another_kind_is_none():
    with pytest.raises(KeyError):
        adapter_bytes({"n_embd": 768}, rank=8)
