"""Adapter bytes: what goes in comes out, the merged model is the trained one, and nothing else is accepted."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import deserialize
from safetensors.numpy import save

from backend.domain.encoders.sentence_settings import Pooling
from backend.domain.jobs.runner_jobs import TrainOptions
from gpu_runners.distill.label.dataset import Pair
from gpu_runners.distill.label.fit import Fit
from gpu_runners.distill.label.peft_net import PeftEngine
from gpu_runners.errors import JobFailed
from gpu_runners.models import label_adapter as adapters
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder import LabelNet, embed_all, load_body
from gpu_runners.models.encoder_runtimes import NumpyRuntime, TorchRuntime, head_logits, load_runtime
from gpu_runners.models.encoder_tokens import TextTokenizer
from gpu_runners.models.label_adapter import AdapterConfig, Head
from gpu_runners.models.numpy_bert import NumpyBert
from gpu_runners.models.tensor_files import load_arrays
from tests.gpu_runners.small_task import Trained

TEXTS = ["where is my parcel", "refund", "", "déjà vu \U0001f4e6 " * 40, "lone surrogate \ud800 here"]


def test_every_engine_computes_what_peft_computes(base: Base) -> None:
    body, config = load_body(base), _config(base)
    tokenizer = TextTokenizer(base, max_tokens=config.max_tokens)
    rng = np.random.default_rng(3)
    head = Head(weight=rng.normal(size=(3, 384)).astype(np.float32), bias=rng.normal(size=3).astype(np.float32))
    pairs = [Pair(text=text, label=i % 3, weight=1.0) for i, text in enumerate(TEXTS * 2)]
    rows = tokenizer.ids([pair.text for pair in pairs])
    net = PeftEngine(body, pooling=Pooling.MEAN, precision="fp32").net(rows, head, TrainOptions())
    fit = Fit(net=net, pairs=pairs, rows=rows, members=np.arange(10), n_labels=3, options=TrainOptions())
    fit.advance()
    fit.advance()
    adapter = adapters.from_bytes(adapters.to_bytes(net.adapter(head)))
    with torch.inference_mode():
        for name, parameter in net.net.named_parameters():
            if ".lora_" in name:  # as it ships
                parameter.copy_(parameter.to(torch.bfloat16))
        expected = net.logits(range(len(rows)), dropout=False).numpy()
    for runtime in (NumpyRuntime(base), TorchRuntime(base)):
        assert np.allclose(runtime.engine(adapter, config).logits(rows), expected, atol=2e-4)
        frozen = head_logits(runtime.embed(rows, pooling=config.pooling), adapter.baseline)
        assert not np.allclose(frozen, expected, atol=1e-2)
    assert isinstance(load_runtime(base), NumpyRuntime)


def test_merging_leaves_the_base_as_it_was(trained: Trained, base: Base) -> None:
    adapter, config = adapters.from_bytes(trained.blob), AdapterConfig.from_json(trained.result.adapter_config)
    rows = TextTokenizer(base, max_tokens=64).ids(TEXTS)
    for runtime in (NumpyRuntime(base), TorchRuntime(base)):
        before = runtime.embed(rows, pooling=config.pooling)
        runtime.engine(adapter, config)
        assert np.array_equal(runtime.embed(rows, pooling=config.pooling), before)


def test_bytes_survive_a_round_trip(trained: Trained) -> None:
    adapter = adapters.from_bytes(trained.blob)
    assert adapters.to_bytes(adapter) == trained.blob
    kept = {name: tensor["dtype"] for name, tensor in deserialize(trained.blob)}
    assert {name: kind for name, kind in kept.items() if kind != "BF16"} == {
        f"{head}.{part}": "F32" for head in ("head", "baseline") for part in ("weight", "bias")
    }


def test_an_adapter_of_an_earlier_release_is_read_as_it_was(trained: Trained) -> None:
    adapter = adapters.from_bytes(trained.blob)
    path, (a, b) = next(iter(adapter.lora.items()))
    finer = dataclasses.replace(adapter, lora=dict(adapter.lora) | {path: (a + np.float32(1e-7), b)})
    tensors = {}
    for name, (first, second) in finer.lora.items():
        tensors |= {f"lora.{name}.A": first, f"lora.{name}.B": second}
    for name, head in (("head", finer.head), ("baseline", finer.baseline)):
        tensors |= {f"{name}.weight": head.weight, f"{name}.bias": head.bias}
    read = adapters.from_bytes(save(tensors))
    assert np.array_equal(read.lora[path][0], finer.lora[path][0])
    assert not np.array_equal(read.lora[path][0], a)


def test_a_batch_and_its_rows_one_by_one_agree(base: Base) -> None:
    bert, net = NumpyBert.load(base), LabelNet(load_body(base), width=384, n_labels=2, pooling="mean")
    rows = TextTokenizer(base, max_tokens=128).ids(TEXTS)
    together = bert.embed(rows, Pooling.MEAN)
    assert np.allclose(embed_all(net, rows).numpy(), together, atol=1e-5)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for i, row in enumerate(rows):
        assert np.allclose(bert.embed([row], Pooling.MEAN)[0], together[i], atol=1e-5)


@pytest.mark.parametrize("damage", ["cut", "pickle", "nan", "whole", "stranger", "lonely"])
def test_bytes_that_are_not_an_adapter_are_refused(trained: Trained, damage: str) -> None:
    tensors: dict[str, Any] = {name: tensor.copy() for name, tensor in load_arrays(trained.blob).items()}
    name = next(name for name in sorted(tensors) if name.endswith(".A"))
    match damage:
        case "nan":
            tensors["head.bias"][0] = np.nan
        case "whole":
            tensors[name] = tensors[name].astype(np.int32)
        case "stranger":
            tensors["hook"] = np.zeros(1, dtype=np.float32)
        case "lonely":
            del tensors[name]
    data = {"cut": trained.blob[:-9], "pickle": b"\x80\x04K\x01."}.get(damage) or save(tensors)
    with pytest.raises(JobFailed) as caught:
        adapters.from_bytes(data)
    assert caught.value.code == "invalid_adapter"


@pytest.mark.parametrize("runtime", [NumpyRuntime, TorchRuntime])
def test_an_adapter_that_does_not_fit_its_config_or_base_is_refused(
    trained: Trained, base: Base, runtime: type[NumpyRuntime] | type[TorchRuntime]
) -> None:
    loaded, adapter = runtime(base), adapters.from_bytes(trained.blob)
    config = AdapterConfig.from_json(trained.result.adapter_config)
    a, b = next(iter(adapter.lora.values()))
    narrow = Head(weight=np.zeros((4, 7), dtype=np.float32), bias=np.zeros(4, dtype=np.float32))
    for damaged, said in (
        (dataclasses.replace(adapter, lora={"encoder.layer.9.output.dense": (a, b)}), "does not fit"),
        (dataclasses.replace(adapter, lora={"encoder.layer.0.output.dense": (a, b)}), "does not fit"),
        (dataclasses.replace(adapter, lora={"embeddings.LayerNorm": (a, b)}), "does not fit"),
        (dataclasses.replace(adapter, head=narrow), "wide"),
    ):
        with pytest.raises(JobFailed, match=said):
            loaded.engine(damaged, config)
    with pytest.raises(JobFailed, match="rank"):
        loaded.engine(adapter, dataclasses.replace(config, rank=4))


def test_a_config_of_another_kind_is_refused(trained: Trained) -> None:
    for change, said in (
        ({"hook": "os.system"}, "keys"),
        ({"pooling": "median"}, "pooling"),
        ({"rank": 0}, "rank"),
        ({"max_tokens": True}, "max_tokens"),
    ):
        with pytest.raises(JobFailed, match=said):
            AdapterConfig.from_json(trained.result.adapter_config | change)


def _config(base: Base) -> AdapterConfig:
    return AdapterConfig(
        format=adapters.FORMAT, base=base.name, base_sha256=base.sha256, rank=8, alpha=16, target_modules=[],
        pooling="mean", normalize=True, scale=16, max_tokens=64,
    )  # fmt: skip
