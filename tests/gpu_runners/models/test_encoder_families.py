"""Encoders of every family against sentence-transformers, and a label task over one from training to `kolm run`."""

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backend.domain.encoders.card_prefixes import Use
from backend.domain.encoders.sentence_settings import TRANSFORMER_FILES, read_settings
from backend.domain.jobs.runner_jobs import DistillJob, TrainOptions
from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.cli.main import main
from gpu_runners.distill.label.train import distill
from gpu_runners.errors import JobFailed
from gpu_runners.models import text_embedding
from gpu_runners.models.base_store.files import read_optional
from gpu_runners.models.bases import Base, open_base
from gpu_runners.models.encoder import LabelNet, load_body, width_of
from gpu_runners.models.encoder_runtimes import TorchRuntime, load_runtime
from gpu_runners.models.encoder_tokens import TextTokenizer, sentence_settings
from gpu_runners.models.label_adapter import AdapterConfig, from_bytes
from gpu_runners.models.merging import merged_body, net_with
from gpu_runners.models.numpy_bert import NumpyBert, can_run
from tests.backend.domain.artifact.tiny_kolm import keyring
from tests.gpu_runners.small_encoders import FAMILIES, NARROW, make_encoder
from tests.gpu_runners.small_task import LABELS, Trained, jsonl, kolm_of, task_rows

TEXTS = [
    "where is my parcel",
    "x",
    "",
    "Wo bleibt mein Paket? Die Größe",
    "荷物はどこですか。返品",
    "refund the broken part " * 30,
    "  spaced   out ",
]
FAST = {"bert", "roberta", "xlm-roberta"}  # what numpy computes
CASES = [
    *((family, "mean", False) for family in FAMILIES),
    *((family, "cls", True) for family in FAMILIES),
    *((family, "mean", False) for family in NARROW),
    *(("bert", mode, True) for mode in ("max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")),
]


@pytest.mark.parametrize(("family", "pooling", "is_old"), CASES)
def test_an_encoder_gives_the_rows_that_sentence_transformers_gives(
    tmp_path: Path, family: str, pooling: str, is_old: bool
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = make_encoder(
        tmp_path / "encoder",
        family,
        pooling=pooling,
        is_old=is_old,
        normalize=not is_old,
        prompts={"clustering": "query: "},
        default_prompt="clustering",
        max_tokens=None if is_old else 40,
    )
    theirs = SentenceTransformer(str(folder), device="cpu")
    wanted = theirs.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    bare = theirs.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False, prompt="")
    base = open_base("encoder", base_dir=tmp_path)
    assert can_run(base) is (family in FAST)
    engines: list[Any] = [text_embedding._TorchEngine(base), *([NumpyBert.load(base)] if family in FAST else [])]
    for engine in engines:
        rows = text_embedding.TextEmbedder(base, engine).embed(TEXTS)
        assert np.abs(rows - wanted).max() < 1e-5
        assert np.abs(rows - bare).max() > 1e-3  # the prefix counts


@pytest.mark.parametrize(("family", "pooling"), [("bert", "cls"), ("xlm-roberta", "mean"), ("modernbert", "cls")])
def test_trainer_engine_and_command_read_and_answer_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], family: str, pooling: str
) -> None:
    prompts = {"classification": "classification: "}
    make_encoder(tmp_path / "encoder", family, pooling=pooling, prompts=prompts, max_tokens=30)
    base = open_base("encoder", base_dir=tmp_path)
    trained = _train(base)
    config = AdapterConfig.from_json(trained.result.adapter_config)
    n_prefix = len(TextTokenizer(base, max_tokens=20).ids([prompts["classification"]])[0]) - 2
    assert (config.pooling, config.prefix, config.max_tokens) == (pooling, "classification: ", 30 - n_prefix)
    assert trained.result.active["pooling"] == pooling

    inputs = ["where is my parcel 3 number 9", "my invoice shows 3 too much on 9", "refund " * 50]
    adapter = from_bytes(trained.blob)
    net = net_with(merged_body(load_body(base), adapter, config), adapter.head, config.pooling)
    tokenizer = TextTokenizer(base, max_tokens=config.max_tokens, prefix=config.prefix)
    with torch.inference_mode():
        logits = net(net.pad(tokenizer.ids(inputs))).numpy()
    wanted = [LABELS[i] for i in logits.argmax(axis=1)]
    for runtime in (load_runtime(base), TorchRuntime(base)):
        model = LabelModel.build(
            base=base, runtime=runtime, adapter=adapter, config=config, labels=LABELS, temperature=1.0
        )
        assert np.abs(model.engine.logits(model.tokenizer.ids(inputs)) - logits).max() < 1e-3
        assert [row["label"] for row in model.predict(inputs)] == wanted

    (tmp_path / "encoder" / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}')  # the artifact decides
    (tmp_path / "keyring.json").write_text(json.dumps(keyring()))
    (tmp_path / "a.kolm").write_bytes(kolm_of(trained))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"input": text}) + "\n" for text in inputs))
    monkeypatch.setenv("KOLM_KEYRING", str(tmp_path / "keyring.json"))
    monkeypatch.setenv("KOLM_BASE_DIR", str(tmp_path))
    assert main(["run", str(tmp_path / "a.kolm"), "--jsonl", str(tmp_path / "in.jsonl")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in rows] == wanted
    probabilities = np.exp(logits / trained.result.temperature)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    assert np.abs(np.array([row["confidence"] for row in rows]) - probabilities.max(axis=1)).max() < 1e-3


def test_an_adapter_from_before_prefixes_is_read_as_it_was_trained(trained: Trained, base: Base) -> None:
    """The pinned MiniLM's own config has no new key, so older readers take what is trained today."""
    data = trained.result.adapter_config
    assert "prefix" not in data
    config = AdapterConfig.from_json(data)
    assert (config.pooling, config.prefix) == ("mean", "")
    assert config.to_json() == data
    settings = sentence_settings(base, Use.CLASSIFICATION)
    assert (settings.pooling, settings.prefix, settings.max_tokens) == ("mean", "", 256)


def test_the_first_format_of_berts_weights_is_read(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = make_encoder(tmp_path / "encoder")
    base = open_base("encoder", base_dir=tmp_path)
    rows = TextTokenizer(base, max_tokens=40).ids(TEXTS)
    wanted = NumpyBert.load(base).embed(rows, sentence_settings(base, Use.CLUSTERING).pooling)
    tensors = load_file(folder / "model.safetensors")
    renamed = {
        "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in tensors.items()
    }
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    old = open_base("encoder", base_dir=tmp_path)
    assert can_run(old)
    assert np.array_equal(NumpyBert.load(old).embed(rows, sentence_settings(old, Use.CLUSTERING).pooling), wanted)
    body = load_body(old)
    net = LabelNet(body, width=width_of(body), n_labels=2, pooling="mean")
    assert np.abs(net.embed(net.pad(rows)).numpy() - wanted).max() < 1e-5


def test_the_names_of_the_length_file_are_read_in_the_order_of_sentence_transformers(tmp_path: Path) -> None:
    from sentence_transformers.base.modules.transformer import Transformer

    for n, file in enumerate(TRANSFORMER_FILES, start=10):
        (tmp_path / file).write_text(json.dumps({"max_seq_length": n}))
    for file in TRANSFORMER_FILES:
        theirs = Transformer.load_config(str(tmp_path))["max_seq_length"]
        ours = read_settings("acme/encoder", Use.CLUSTERING, partial(read_optional, tmp_path))
        assert ours.max_tokens == theirs
        (tmp_path / file).write_text("{}")


def _damage(folder: Path, what: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    match what:
        case "dense":
            rows = json.loads((folder / "modules.json").read_text())
            rows.insert(2, {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
            (folder / "modules.json").write_text(json.dumps(rows))
        case "remote code":
            auto = {"AutoModel": "modeling.NewModel"}
            (folder / "config.json").write_text(json.dumps(config | {"model_type": "acme-new", "auto_map": auto}))
        case "odd size":
            (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": 0}))
        case "missing tensor":
            from safetensors.numpy import load_file, save_file

            tensors = load_file(folder / "model.safetensors")
            del tensors["encoder.layer.1.output.dense.weight"]
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        case "lower case":
            tokenizer = json.loads((folder / "tokenizer.json").read_text())
            tokenizer["normalizer"]["lowercase"] = False
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
            (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 40, "do_lower_case": true}')
        case "long prefix":
            prompts = {"prompts": {"classification": "where is my parcel " * 12}}
            (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))


@pytest.mark.parametrize(
    ("what", "code", "word"),
    [
        ("dense", "base_unsupported", "Dense"),
        ("remote code", "base_needs_remote_code", "its own repository"),
        ("odd size", "base_wrong_architecture", "does not load it"),
        ("missing tensor", "base_wrong_architecture", "output.dense.weight"),
        ("lower case", "base_unsupported", "keeps capitals"),
        ("long prefix", "base_unsupported", "prefix"),
    ],
)
def test_what_an_encoder_wants_and_kolm_does_not_compute_ends_in_a_sentence(
    tmp_path: Path, what: str, code: str, word: str
) -> None:
    _damage(make_encoder(tmp_path / "encoder"), what)
    with pytest.raises(JobFailed, match=word) as caught:
        _train(open_base("encoder", base_dir=tmp_path))
    assert (caught.value.code, caught.value.retryable) == (code, False)


def test_a_model_that_writes_as_well_is_no_encoder(tmp_path: Path) -> None:
    from transformers import T5Config, T5Model

    folder = make_encoder(tmp_path / "encoder")
    (folder / "modules.json").unlink()
    (folder / "model.safetensors").unlink()
    sizes = {"vocab_size": 400, "d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    T5Model(T5Config(**sizes)).save_pretrained(folder)
    with pytest.raises(JobFailed, match="not an encoder of texts alone") as caught:
        load_body(open_base("encoder", base_dir=tmp_path))
    assert caught.value.code == "base_unsupported"


def test_a_text_as_long_as_the_positions_reach_is_read(tmp_path: Path) -> None:
    """RoBERTa's 66 positions hold 64 tokens: the first two are never used."""
    make_encoder(tmp_path / "encoder", "roberta", max_tokens=None)
    (tmp_path / "encoder" / "tokenizer_config.json").unlink()
    base = open_base("encoder", base_dir=tmp_path)
    tokenizer = TextTokenizer(base, max_tokens=512)
    assert tokenizer.max_tokens == 64
    rows = tokenizer.ids(["refund " * 100])
    assert len(rows[0]) == 64
    pooling = sentence_settings(base, Use.CLUSTERING).pooling
    for engine in (NumpyBert.load(base), text_embedding._TorchEngine(base)):
        assert np.isfinite(engine.embed(rows, pooling)).all()


def _train(base: Base) -> Trained:
    data = jsonl(task_rows(6))
    job = DistillJob(
        base_model=base.name,
        labels=LABELS,
        dataset_sha256=hashlib.sha256(data).hexdigest(),
        train=TrainOptions(epochs=1, precision="fp32", max_tokens=64).to_json(),
    )
    blob, result = distill(job, data, base=base)
    return Trained(job=job, dataset=data, blob=blob, result=result)
