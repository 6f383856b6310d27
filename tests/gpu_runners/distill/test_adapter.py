"""Adapter bytes: what goes in comes out, the merged model is the trained one, and nothing else is accepted."""

import dataclasses

import pytest
import torch
from safetensors.torch import load, save

from backend.domain.runner_jobs import TrainOptions
from gpu_runners.distill import adapter as adapters
from gpu_runners.distill.adapter import Adapter, AdapterConfig, Head
from gpu_runners.distill.bases import Base
from gpu_runners.distill.dataset import Pair
from gpu_runners.distill.encoder import embed_all, load_body, tokenizer_for
from gpu_runners.distill.fit import Fit
from gpu_runners.errors import JobFailed
from tests.gpu_runners.small_task import LABELS, Trained

TEXTS = ["where is my parcel", "refund", "", "déjà vu \U0001f4e6 " * 40, "lone surrogate \ud800 here"]


def test_the_merged_model_computes_what_peft_computes(base: Base) -> None:
    body = load_body(base)
    tokenizer = tokenizer_for(base, body, max_tokens=64)
    head = Head(weight=torch.randn(3, 384), bias=torch.randn(3))
    pairs = [Pair(text=text, label=i % 3, weight=1.0) for i, text in enumerate(TEXTS * 2)]
    rows = tokenizer.ids([pair.text for pair in pairs])
    fit = Fit(
        body=body, tokenizer=tokenizer, pairs=pairs, rows=rows, head=head, options=TrainOptions(), precision="fp32"
    )
    fit.advance()
    fit.advance()
    adapter = adapters.from_bytes(adapters.to_bytes(adapters.from_peft(fit.net, baseline=head)))
    net = adapters.merged_net(body, adapter, _config(base), n_labels=3)
    with torch.inference_mode():
        peft_logits = fit.net.eval()(tokenizer.pad(rows))
        assert torch.allclose(net(tokenizer.pad(rows)), peft_logits, atol=2e-4)
        assert not torch.allclose(
            adapters.baseline_net(body, adapter, n_labels=3)(tokenizer.pad(rows)), peft_logits, atol=1e-2
        )


def test_merging_leaves_the_base_as_it_was(trained: Trained, base: Base) -> None:
    body = load_body(base)
    before = {name: parameter.clone() for name, parameter in body.named_parameters()}
    adapter = adapters.from_bytes(trained.blob)
    adapters.merged_net(body, adapter, AdapterConfig.from_json(trained.result.adapter_config), n_labels=len(LABELS))
    assert all(torch.equal(before[name], parameter) for name, parameter in body.named_parameters())


def test_bytes_survive_a_round_trip(trained: Trained) -> None:
    assert adapters.to_bytes(adapters.from_bytes(trained.blob)) == trained.blob


def test_a_batch_and_its_rows_one_by_one_agree(base: Base) -> None:
    body = load_body(base)
    tokenizer = tokenizer_for(base, body, max_tokens=128)
    adapter = Adapter(lora={}, head=_head(), baseline=_head())
    net = adapters.baseline_net(body, adapter, n_labels=2)
    rows = tokenizer.ids(TEXTS)
    together = embed_all(net, tokenizer, rows)
    assert torch.allclose(together.norm(dim=1), torch.ones(len(rows)), atol=1e-5)
    for i, row in enumerate(rows):
        assert torch.allclose(embed_all(net, tokenizer, [row])[0], together[i], atol=1e-5)


@pytest.mark.parametrize("damage", ["cut", "pickle", "nan", "half", "stranger", "lonely"])
def test_bytes_that_are_not_an_adapter_are_refused(trained: Trained, damage: str) -> None:
    tensors = load(trained.blob)
    name = next(name for name in sorted(tensors) if name.endswith(".A"))
    match damage:
        case "nan":
            tensors["head.bias"][0] = float("nan")
        case "half":
            tensors[name] = tensors[name].half()
        case "stranger":
            tensors["hook"] = torch.zeros(1)
        case "lonely":
            del tensors[name]
    data = {"cut": trained.blob[:-9], "pickle": b"\x80\x04K\x01."}.get(damage) or save(tensors)
    with pytest.raises(JobFailed) as caught:
        adapters.from_bytes(data)
    assert caught.value.code == "invalid_adapter"


def test_an_adapter_that_does_not_fit_its_config_or_task_is_refused(trained: Trained, base: Base) -> None:
    body, adapter = load_body(base), adapters.from_bytes(trained.blob)
    config = AdapterConfig.from_json(trained.result.adapter_config)
    with pytest.raises(JobFailed, match="does not fit"):
        adapters.merged_net(body, adapter, dataclasses.replace(config, rank=4), n_labels=len(LABELS))
    with pytest.raises(JobFailed, match="head"):
        adapters.merged_net(body, adapter, config, n_labels=7)
    with pytest.raises(JobFailed, match="keys"):
        AdapterConfig.from_json(trained.result.adapter_config | {"hook": "os.system"})
    with pytest.raises(JobFailed, match="kind"):
        AdapterConfig.from_json(trained.result.adapter_config | {"pooling": "cls"})


def _head() -> Head:
    return Head(weight=torch.zeros(2, 384), bias=torch.zeros(2))


def _config(base: Base) -> AdapterConfig:
    return AdapterConfig(
        format=adapters.FORMAT, base=base.name, base_sha256=base.sha256, rank=8, alpha=16, target_modules=[],
        pooling="mean", normalize=True, scale=16, max_tokens=64,
    )  # fmt: skip
