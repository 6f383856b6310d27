"""`kolm export --to gguf`: llama-server, where it was built, writes what the artifact writes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from backend.domain.canonical import canonical_json
from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.observing import Observed
from gpu_runners.artifacts.loader import merged_model
from gpu_runners.errors import ExportRefused
from gpu_runners.exports.gguf.modelfile import Around, modelfile
from gpu_runners.exports.gguf.vocabulary import cut_of
from gpu_runners.exports.to_gguf import export_gguf
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.chat import prompt_ids
from gpu_runners.speculation.vocabulary import token_texts
from tests.gpu_runners.exports.students import original_of, random_text_kolm
from tests.gpu_runners.small_base import make_base
from tests.gpu_runners.speculation.llama_server import SERVER, llama_server
from tests.gpu_runners.speculation.tiny_task import requests
from tests.tiny_bases import TINY, tiny_bases  # noqa: F401

pytest.importorskip("gguf", reason="gguf is of the extra `export`")
needs_server = pytest.mark.skipif(
    not SERVER.exists(), reason="no llama-server here: `make setup-llama-server` builds it into .venv-llama"
)
N_INPUTS = 100
MOST = 24
EXACT = (
    "--cache-type-k",
    "f32",
    "--cache-type-v",
    "f32",
    "--flash-attn",
    "off",
)  # its default keeps 16 bits of the past


def same_text(kolm_bytes: bytes, base: CausalBase, out: Path, inputs: list[str]) -> None:
    """llama-server over base and adapter, and our engine over the artifact: token by token, greedily."""
    original = original_of(kolm_bytes)
    export_gguf(original, out, base_dir=base.folder.parent, fp32=False)
    wanted = merged_model(original.kolm, base_dir=base.folder.parent).predict(inputs)
    system = json.loads((out / "prompt.json").read_text())["system"]
    flags = ("--lora", str(out / "adapter.gguf"), *EXACT)
    with llama_server(out / "base.gguf", *flags, log=out.parent / "log") as server:
        tokens = [server.answer(prompt_ids(base, system, text), most=MOST).tokens for text in inputs]
    texts = [base.tokenizer.decode(list(ids), skip_special_tokens=True) for ids in tokens]
    assert texts == [row["output"] for row in wanted]
    assert len(set(texts)) > len(texts) // 4  # and not always the same


@needs_server
def test_llama_server_writes_the_text_of_the_artifact(tiny_bases: Path, tmp_path: Path) -> None:  # noqa: F811
    base = open_causal_base(TINY, base_dir=tiny_bases)
    kolm = random_text_kolm(base, max_new_tokens=MOST)
    same_text(kolm, base, tmp_path / "out", requests(N_INPUTS))


@needs_server
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("variant", ["lora", "rslora"])
def test_every_architecture_and_scaling_is_written(tmp_path: Path, kind: str, variant: str) -> None:
    base = make_base(tmp_path / "bases" / kind, kind=kind)
    kolm = random_text_kolm(base, variant=variant, size=0.3, max_new_tokens=MOST)
    same_text(kolm, base, tmp_path / "out", requests(12))


def test_a_base_that_llama_cpp_cuts_alike_gets_a_modelfile(tmp_path: Path) -> None:
    base = make_base(tmp_path / "bases" / "small")
    export_gguf(original_of(random_text_kolm(base)), tmp_path / "out", base_dir=tmp_path / "bases", fp32=False)
    text = (tmp_path / "out" / "Modelfile").read_text()
    assert text.startswith("FROM ./base.gguf\nADAPTER ./adapter.gguf\n")
    reading = json.loads((tmp_path / "out" / "export.json").read_text())["reading"]
    assert reading["is_cut_alike"]
    whole = reading["before"] + "two lamps" + reading["after"]
    wanted = prompt_ids(base, "Answer about the order.", "two lamps")
    assert base.tokenizer(whole, add_special_tokens=False)["input_ids"] == wanted
    assert f'TEMPLATE """{reading["before"]}{{{{ .Prompt }}}}{reading["after"]}"""' in text
    assert 'PARAMETER stop "<|end|>"' in text
    assert "PARAMETER temperature 0" in text


@needs_server
def test_llama_server_cuts_a_text_where_the_base_does(tmp_path: Path) -> None:
    base = make_base(tmp_path / "bases" / "small")
    export_gguf(original_of(random_text_kolm(base)), tmp_path / "out", base_dir=tmp_path / "bases", fp32=False)
    reading = json.loads((tmp_path / "out" / "export.json").read_text())["reading"]
    with llama_server(tmp_path / "out" / "base.gguf", log=tmp_path / "log") as server:
        for text in ("two lamps", "é ü 漢字 12", 'x  {"name": 3}\n\n y', "don't 1234"):
            content = reading["before"] + text + reading["after"]
            sent: dict[str, Any] = {"content": content, "add_special": True, "parse_special": True}
            tokens = server._post("/tokenize", sent)["tokens"]
            assert tokens == prompt_ids(base, "Answer about the order.", text)


def test_a_base_that_llama_cpp_cannot_cut_gets_no_modelfile(tiny_bases: Path, tmp_path: Path) -> None:  # noqa: F811
    base = open_causal_base(TINY, base_dir=tiny_bases)
    assert cut_of(json.loads((base.folder / "tokenizer.json").read_text())) is None
    export_gguf(original_of(random_text_kolm(base)), tmp_path / "out", base_dir=tiny_bases, fp32=False)
    assert not (tmp_path / "out" / "Modelfile").exists()
    assert json.loads((tmp_path / "out" / "export.json").read_text())["reading"]["is_cut_alike"] is False


@pytest.mark.parametrize(("fp32", "kind"), [(False, "BF16"), (True, "F32")])
def test_a_base_in_16_bits_keeps_its_numbers_in_the_type_that_is_asked_for(
    tmp_path: Path, fp32: bool, kind: str
) -> None:
    import gguf
    import torch

    base = in_bf16(make_base(tmp_path / "bases" / "small", kind="qwen2"))
    export_gguf(original_of(random_text_kolm(base)), tmp_path / "out", base_dir=tmp_path / "bases", fp32=fp32)
    tensors = {one.name: one for one in gguf.GGUFReader(tmp_path / "out" / "base.gguf").tensors}
    matrices = {name: one for name, one in tensors.items() if len(one.shape) > 1}
    assert {one.tensor_type.name for one in matrices.values()} == {kind}
    assert {one.tensor_type.name for name, one in tensors.items() if name not in matrices} == {"F32"}
    stored = load_file(base.folder / "model.safetensors")["model.layers.1.mlp.down_proj.weight"]
    own = torch.from_numpy(tensors["blk.1.ffn_down.weight"].data.copy())
    assert torch.equal(own if fp32 else own.view(torch.bfloat16), stored.float() if fp32 else stored)
    assert json.loads((tmp_path / "out" / "export.json").read_text())["precision"] == ("fp32" if fp32 else "stored")


def in_bf16(base: CausalBase) -> CausalBase:
    """The base with its weights rounded, in its folder."""
    import torch

    path = base.folder / "model.safetensors"
    save_file({name: one.to(torch.bfloat16) for name, one in load_file(path).items()}, path, metadata={"format": "pt"})
    return open_causal_base(base.name, base_dir=base.folder.parent)


def test_recipes_go_along_as_a_look_up_file(tiny_bases: Path, tmp_path: Path) -> None:  # noqa: F811
    base = open_causal_base(TINY, base_dir=tiny_bases)
    answers = [base.tokenizer(text)["input_ids"] for text in ['{"delivery_city": "Bonn"}'] * 20]
    pack = build_pack(
        [Observed(tokens=tuple(ids), agreed=(1,) * len(ids), n_samples=1) for ids in answers],
        token_texts(base),
        tokenizer_sha256=base.tokenizer_sha256,
        base=base.name,
        options=PackOptions(),
        end_ids=base.eos_ids,
    )
    kolm = random_text_kolm(base, beside={"recipes.json": canonical_json(pack.to_json())})
    export_gguf(original_of(kolm), tmp_path / "out", base_dir=tiny_bases, fp32=False)
    n_pairs = json.loads((tmp_path / "out" / "export.json").read_text())["lookup_pairs"]
    assert n_pairs > 0
    assert (tmp_path / "out" / "recipes.bin").stat().st_size >= n_pairs * 20


@pytest.mark.parametrize(("kind", "variant", "words"), [("llama", "dora", "DoRA"), ("glm", "lora", "'glm'")])
def test_what_llama_cpp_cannot_load_is_refused_with_what_to_use(
    tmp_path: Path, kind: str, variant: str, words: str
) -> None:
    base = make_base(tmp_path / "bases" / kind, kind=kind)
    kolm = random_text_kolm(base, variant=variant)
    with pytest.raises(ExportRefused, match=rf"{re.escape(words)}.*--to peft"):
        export_gguf(original_of(kolm), tmp_path / "out", base_dir=tmp_path / "bases", fp32=False)
    assert not (tmp_path / "out").exists()


def test_a_text_cannot_end_its_template() -> None:
    around = Around(before='say """ and {{ .System }}', after="\n")
    text = modelfile(around, begin="", ends=['a"b'], max_new_tokens=3)
    assert text.count('"""') == 2
    assert '{{ "{{" }} .System }}' in text
    assert 'PARAMETER stop "a\\"b"' in text
