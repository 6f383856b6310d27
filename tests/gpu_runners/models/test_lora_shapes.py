"""An adapter that does not fit is refused before an engine reads it."""

import json
from pathlib import Path

import pytest

from backend.domain.jobs.causal_jobs import CausalOptions
from gpu_runners.distill.causal.loading import NET, adapter_from, with_lora
from gpu_runners.models.causal_adapter import write_peft_folder
from gpu_runners.models.causal_base import CausalBase, load_weights
from gpu_runners.models.lora_shapes import check_shapes
from gpu_runners.models.protocol import Rejected
from tests.gpu_runners.serving.small_adapters import adapter_config, paper_base, random_adapter
from tests.gpu_runners.small_base import make_base

CONFIG = {
    "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
    "num_hidden_layers": 2,
}  # fmt: skip
FITTING = {
    "model.layers.0.self_attn.q_proj": (16, 16),
    "model.layers.1.self_attn.v_proj": (16, 8),
    "model.layers.1.mlp.down_proj": (40, 16),
}


def checked(folder: Path, shapes: dict[str, tuple[int, int]], *, rank: int = 4) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    adapter = random_adapter(0, rank=4, shapes=shapes, scale=1.0)
    write_peft_folder(folder, adapter, adapter_config(paper_base()))
    check_shapes(folder, folder, rank=rank)


def test_a_fitting_adapter_is_taken(tmp_path: Path) -> None:
    checked(tmp_path, FITTING)


@pytest.mark.parametrize(
    "shapes",
    [
        {"model.layers.2.self_attn.q_proj": (16, 16)},
        {"model.layers.0.self_attn.v_proj": (16, 16)},
        {"model.layers.0.self_attn.q_proj": (8, 16)},
        {"model.embed_tokens": (16, 16)},
        {"model.layers.0.mlp.experts": (16, 16)},
    ],
)
def test_a_layer_that_is_not_there_or_of_another_size_is_refused(
    tmp_path: Path, shapes: dict[str, tuple[int, int]]
) -> None:
    with pytest.raises(Rejected, match="does not fit the base"):
        checked(tmp_path, FITTING | shapes)


def test_another_rank_than_the_config_says_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected):
        checked(tmp_path, FITTING, rank=8)


def trained_adapter(base: CausalBase, folder: Path) -> None:
    """Write the adapter that a training of this base leaves: a pair of matrices for each of its linear layers."""
    net = with_lora(load_weights(base), CausalOptions(rank=4))
    adapter = adapter_from({NET + name: tensor for name, tensor in net.named_parameters() if tensor.requires_grad})
    assert any(path.endswith("gate_up_proj") for path in adapter.lora)
    folder.mkdir()
    write_peft_folder(folder, adapter, adapter_config(paper_base()))


def test_an_adapter_of_a_base_with_fused_layers_is_taken(tmp_path: Path) -> None:
    """Phi-3 and Phi-4: one layer for query, key and value, one for gate and up."""
    base = make_base(tmp_path / "phi", kind="phi3")
    trained_adapter(base, tmp_path / "adapter")
    check_shapes(tmp_path / "adapter", base.folder, rank=4)
    config = json.loads((base.folder / "config.json").read_text())
    (base.folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 95}))
    with pytest.raises(Rejected, match="proj"):
        check_shapes(tmp_path / "adapter", base.folder, rank=4)


def test_a_fused_layer_that_vllm_wants_in_halves_is_refused(tmp_path: Path) -> None:
    base = make_base(tmp_path / "glm", kind="glm")
    trained_adapter(base, tmp_path / "adapter")
    with pytest.raises(Rejected, match="gate_up_proj"):
        check_shapes(tmp_path / "adapter", base.folder, rank=4)
