"""`kolm export --to gguf` of an adapter that was trained over Gemma 3 270M, where `make base-gemma` and `make
setup-llama-server` were done: llama-server writes the same greedy text for 100 inputs that were not trained on.

It takes ten minutes of a core or more, most of them llama-server's.
"""

import json
from pathlib import Path

import pytest

from deploy.gemma.__main__ import NAME
from gpu_runners.artifacts.loader import merged_model
from gpu_runners.exports.folder import Original
from gpu_runners.exports.to_gguf import export_gguf
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.chat import prompt_ids
from tests.gpu_runners.exports.students import original_of
from tests.gpu_runners.exports.test_gguf import EXACT, needs_server
from tests.gpu_runners.exports.trained_gemma import MOST, N_PAIRS, SYSTEM, pairs, trained_kolm
from tests.gpu_runners.speculation.llama_server import llama_server

pytest.importorskip("gguf", reason="gguf is of the extra `export`")
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600), needs_server]
BASES = Path(__file__).parents[3] / "build" / "bases"
N_INPUTS = 100


@pytest.fixture(scope="module")
def gemma() -> CausalBase:
    if not (BASES / NAME).is_dir():
        pytest.skip("no Gemma here: `make base-gemma` fetches and converts it")
    return open_causal_base(NAME, base_dir=BASES)


@pytest.fixture(scope="module")
def original(gemma: CausalBase) -> Original:
    return original_of(trained_kolm(gemma))


@pytest.fixture(scope="module")
def exported(original: Original, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders `stored` and `fp32`, of which the second has the base in float32."""
    out = tmp_path_factory.mktemp("gemma")
    for name in ("stored", "fp32"):
        export_gguf(original, out / name, base_dir=BASES, fp32=name == "fp32")
    return out


@pytest.fixture(scope="module")
def answered(original: Original) -> list[tuple[str, str]]:
    """Inputs, all of them different, with the answers of the artifact, most of which are right."""
    rows = pairs(N_PAIRS + N_INPUTS)[N_PAIRS:]
    inputs, right = [text for text, _ in rows], [answer for _, answer in rows]
    texts = [row["output"] for row in merged_model(original.kolm, base_dir=BASES).predict(inputs)]
    assert len(set(inputs)) == N_INPUTS
    assert sum(ours == answer for ours, answer in zip(texts, right, strict=True)) > 0.9 * N_INPUTS
    return list(zip(inputs, texts, strict=True))


@pytest.mark.parametrize(("folder", "flags"), [("stored", EXACT), ("stored", ()), ("fp32", EXACT)])
def test_llama_server_writes_the_text_of_a_trained_adapter(
    gemma: CausalBase, exported: Path, answered: list[tuple[str, str]], folder: str, flags: tuple[str, ...]
) -> None:
    out = exported / folder
    with llama_server(out / "base.gguf", "--lora", str(out / "adapter.gguf"), *flags, log=exported / "log") as server:
        tokens = [server.answer(prompt_ids(gemma, SYSTEM, text), most=MOST).tokens for text, _ in answered]
    theirs = [gemma.tokenizer.decode(list(ids), skip_special_tokens=True) for ids in tokens]
    assert theirs == [ours for _, ours in answered]


def test_llama_server_cuts_a_prompt_as_the_artifact_does(
    gemma: CausalBase, exported: Path, answered: list[tuple[str, str]]
) -> None:
    reading = json.loads((exported / "stored" / "export.json").read_text())["reading"]
    with llama_server(exported / "stored" / "base.gguf", log=exported / "log") as server:
        for text, _ in answered:
            content = reading["before"] + text + reading["after"]
            sent = {"content": content, "add_special": True, "parse_special": True}
            assert server._post("/tokenize", sent)["tokens"] == prompt_ids(gemma, SYSTEM, text)
