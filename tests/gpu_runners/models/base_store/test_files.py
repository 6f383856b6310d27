"""What the files of a base must be before it is loaded: heads of weights that a loader reads, a network that
transformers has."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store.files import check_base, check_config


def base_of(folder: Path, header: dict[str, Any], n_bytes: int) -> Path:
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * n_bytes)
    for file in ("config.json", "tokenizer.json"):
        (folder / file).write_text("{}")
    return folder


def tensor(dtype: str, shape: list[Any], at: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}


def test_the_shapes_of_a_base_are_those_of_its_headers(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "b": tensor("BF16", [], 8, 10), "a": tensor("F32", [2, 1], 0, 8)}
    assert check_base(base_of(tmp_path, header, 10), "mine") == {"b": [], "a": [2, 1]}


@pytest.mark.parametrize(
    ("header", "n_bytes"),
    [
        ({"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 0, 8)}, 8),
        ({"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 4, 12)}, 12),
        ({"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 12, 20)}, 20),
        ({"a": tensor("F32", [2], 8, 16)}, 16),
        ({"a": tensor("BF16", [2], 0, 8)}, 8),
        ({"a": tensor("F32", [3], 0, 8)}, 8),
        ({"a": tensor("F32", [1 << 62, 4], 0, 8)}, 8),
        ({"a": tensor("XX", [2], 0, 8)}, 8),
        ({"a": tensor("F32", ["a", "b"], 0, 8)}, 8),
        ({"a": tensor("F32", [-2], 0, 8)}, 8),
        ({"a": tensor("F32", [2.0], 0, 8)}, 8),
        ({"a": {"shape": [2], "data_offsets": [0, 8]}}, 8),
        ({"a": tensor("F32", [2], 0, 8), "__metadata__": {"n": 1}}, 8),
    ],
)
def test_a_header_that_does_not_describe_its_bytes_is_no_whole_base(
    tmp_path: Path, header: dict[str, Any], n_bytes: int
) -> None:
    with pytest.raises(JobFailed) as caught:
        check_base(base_of(tmp_path, header, n_bytes), "mine")
    assert (caught.value.code, "model.safetensors" in caught.value.message) == ("base_truncated", True)


@pytest.mark.parametrize(
    ("model_type", "auto_map", "is_native"),
    [
        (
            "nomic_bert",
            {"AutoModel": "a/b--m.NomicBertModel", "AutoModelForMaskedLM": "m.NomicBertForPreTraining"},
            True,
        ),
        ("qwen2", {"AutoConfig": "c.Qwen2Config", "AutoModelForCausalLM": "modeling_qwen.Qwen2ForCausalLM"}, True),
        ("mpt", {"AutoConfig": "c.MPTConfig", "AutoModelForCausalLM": "modeling_mpt.MPTForCausalLM"}, True),
        ("qwen2", {"AutoTokenizer": ["t.OwnTokenizer", None]}, True),
        ("funnel", {"AutoModel": "m.FunnelBaseModel"}, True),
        ("bert", {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"}, False),
        (
            "bert",
            {"AutoConfig": "configuration_bert.JinaBertConfig", "AutoModelForMaskedLM": "m.BertForMaskedLM"},
            False,
        ),
        ("xlm-roberta", {"AutoModel": "modeling_lora.XLMRobertaLoRA"}, False),
        ("bert", {"AutoModel": "modeling.RobertaModel"}, False),
        ("qwen2", {"AutoModelForCausalLM": ["m.OwnForCausalLM"]}, False),
        ("own", {"AutoModel": "modeling.OwnModel"}, False),
    ],
)
def test_only_classes_that_transformers_has_for_the_type_are_loaded_without_their_code(
    model_type: str, auto_map: dict[str, Any], is_native: bool
) -> None:
    try:
        check_config({"model_type": model_type, "auto_map": auto_map}, "owner/any")
        code = ""
    except JobFailed as refused:
        code = refused.code
    assert code == ("" if is_native else "base_needs_remote_code")
