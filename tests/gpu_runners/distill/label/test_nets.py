"""The lean engine against transformers, peft and numpy, over random encoders and the real one."""

from pathlib import Path

import numpy as np
import pytest
import torch

from backend.domain.encoders.sentence_settings import Pooling
from backend.domain.jobs.runner_jobs import TrainOptions
from gpu_runners.distill.label import nets
from gpu_runners.distill.label.frozen_bert import ROWS_OF_BF16, FrozenBert, adapt, batch_of, dropped_out
from gpu_runners.distill.label.nets import LeanEngine, LeanNet
from gpu_runners.distill.label.peft_net import PeftEngine
from gpu_runners.models.bases import open_base
from gpu_runners.models.encoder import LabelNet, embed_all, load_body
from gpu_runners.models.encoder_runtimes import NumpyRuntime
from gpu_runners.models.label_adapter import FORMAT, AdapterConfig, Head
from tests.gpu_runners.small_encoders import make_encoder

CPU = torch.device("cpu")
ROWS = [[2, *range(10, 10 + n), 3] for n in (1, 3, 3, 7, 20, 0)]
HEAD = Head(
    weight=np.random.default_rng(3).normal(size=(3, 32)).astype(np.float32), bias=np.array([0.1, 0, -0.1], np.float32)
)


def lean(folder: Path, pooling: Pooling = Pooling.MEAN, dtype: torch.dtype = torch.float32) -> LeanEngine:
    base = open_base(folder.name, base_dir=folder.parent)
    return LeanEngine(FrozenBert.load(base, device=CPU, dtype=dtype), pooling=pooling)


def stirred(net: LeanNet, *, seed: int = 5) -> LeanNet:
    """With B matrices that are not zero, as after some steps."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in net.trained.items():
            if name.endswith(".b"):
                parameter.normal_(std=0.2, generator=generator)
    return net


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("pooling", [Pooling.MEAN, Pooling.CLS, Pooling.LAST_TOKEN])
def test_the_frozen_body_gives_the_rows_of_transformers(tmp_path: Path, family: str, pooling: Pooling) -> None:
    folder = make_encoder(tmp_path / "encoder", family)
    net = LabelNet(load_body(open_base("encoder", base_dir=tmp_path)), width=32, n_labels=2, pooling=pooling)
    assert np.allclose(lean(folder, pooling).embed(ROWS), embed_all(net, ROWS).numpy(), atol=1e-5)


@pytest.mark.parametrize("layers", [0, 1])
def test_logits_and_gradients_are_those_of_peft(tmp_path: Path, layers: int) -> None:
    folder = make_encoder(tmp_path / "encoder")
    options = TrainOptions(layers=layers, rank=4, alpha=8)
    ours = stirred(lean(folder).net(ROWS, HEAD, options))
    theirs = PeftEngine(load_body(open_base("encoder", base_dir=tmp_path)), pooling=Pooling.MEAN, precision="fp32").net(
        ROWS, HEAD, options
    )
    with torch.no_grad():
        for path, (a, b) in ours.adapter(HEAD).lora.items():
            for side, value in (("A", a), ("B", b)):
                name = f"body.base_model.model.{path}.lora_{side}.default.weight"
                theirs.trained[name].copy_(torch.from_numpy(value))
    assert theirs.adapter(HEAD).lora.keys() == ours.adapter(HEAD).lora.keys()
    for net in (ours, theirs):
        loss = torch.nn.functional.cross_entropy(net.logits([0, 3, 4], dropout=False), torch.tensor([0, 1, 2]))
        loss.backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(ours.logits([0, 3, 4], dropout=False), theirs.logits([0, 3, 4], dropout=False), atol=1e-4)
    last = "encoder.layer.1."
    for path, site, part in (
        ("attention.self.key", "qkv", 1),
        ("attention.output.dense", "attended", 0),
        ("intermediate.dense", "inner", 0),
        ("output.dense", "outer", 0),
    ):
        for side in "ab":
            name = f"body.base_model.model.{last}{path}.lora_{side.upper()}.default.weight"
            whole = ours.trained[f"1.{site}.{side}"].grad
            assert whole is not None
            expected = theirs.trained[name].grad
            assert expected is not None
            mine = whole.chunk(3 if site == "qkv" else 1)[part]
            assert torch.allclose(mine, expected, atol=1e-5 + 1e-4 * float(expected.abs().max()))


def test_the_gradient_of_an_adapted_layer_is_the_derivative() -> None:
    torch.manual_seed(1)
    shapes = {"x": (5, 6), "a": (9, 6), "b": (12, 3), "weight": (12, 6), "bias": (12,)}
    x, a, b, weight, bias = (torch.randn(shape, dtype=torch.float64) for shape in shapes.values())
    assert torch.autograd.gradcheck(
        lambda x, a, b: adapt(x, a, b, weight, bias, 1.5), [value.requires_grad_() for value in (x, a, b)]
    )


@pytest.mark.parametrize("layers", [0, 1])
def test_the_numpy_engine_answers_as_the_trained_net_does(tmp_path: Path, layers: int) -> None:
    folder = make_encoder(tmp_path / "encoder")
    base = open_base("encoder", base_dir=tmp_path)
    net = stirred(lean(folder).net(ROWS, HEAD, TrainOptions(layers=layers)))
    config = AdapterConfig(
        format=FORMAT,
        base=base.name,
        base_sha256=base.sha256,
        rank=8,
        alpha=16,
        target_modules=["dense", "key", "query", "value"],
        pooling="mean",
        normalize=True,
        scale=16,
        max_tokens=40,
    )
    served = NumpyRuntime(base).engine(net.adapter(HEAD), config).logits(ROWS)
    with torch.inference_mode():
        assert np.allclose(net.logits(range(len(ROWS)), dropout=False).numpy(), served, atol=1e-4)


def test_states_that_are_kept_are_those_that_are_computed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = lean(make_encoder(tmp_path / "encoder"))
    kept = stirred(engine.net(ROWS, HEAD, TrainOptions(layers=1)))
    monkeypatch.setattr(nets, "MOST_CACHED", 0)
    anew = stirred(engine.net(ROWS, HEAD, TrainOptions(layers=1)))
    assert torch.allclose(kept.logits([5, 1, 4], dropout=False), anew.logits([5, 1, 4], dropout=False), atol=1e-5)
    assert set(kept.adapter(HEAD).lora) == {p for p in kept.adapter(HEAD).lora if p.startswith("encoder.layer.1.")}


def test_dropout_moves_the_logits_and_is_off_where_it_is_not_wanted(tmp_path: Path) -> None:
    net = stirred(lean(make_encoder(tmp_path / "encoder")).net(ROWS, HEAD, TrainOptions(dropout=0.5)))
    plain = net.logits([3, 4], dropout=False)
    assert torch.equal(plain, net.logits([3, 4], dropout=False))
    assert not torch.allclose(plain, net.logits([3, 4], dropout=True), atol=1e-3)


def test_the_bodys_own_dropout_is_on_while_it_trains(tmp_path: Path) -> None:
    engine = lean(make_encoder(tmp_path / "encoder"))
    assert engine.body.dropout == 0.1  # of BERT's config
    net = stirred(engine.net(ROWS, HEAD, TrainOptions(dropout=0.0)))
    plain = net.logits([3, 4], dropout=False)
    assert not torch.allclose(plain, net.logits([3, 4], dropout=True), atol=1e-3)
    engine.body.dropout = 0.0
    assert torch.equal(plain, net.logits([3, 4], dropout=True))


def test_bf16_gives_about_the_logits_of_fp32(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "encoder")
    fine, coarse = (
        stirred(lean(folder, dtype=dtype).net(ROWS, HEAD, TrainOptions())).logits(range(6), dropout=False)
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert coarse.dtype is torch.float32
    assert not torch.equal(fine, coarse)
    assert float((fine - coarse).detach().abs().mean()) < 0.3


@pytest.mark.parametrize("lengths", [[3, 9, 20], [32], [16, 16], [5, 5, 5, 5], [1], [40, 1, 0]])
def test_rows_are_rounded_up_with_padding_that_nothing_reads(tmp_path: Path, lengths: list[int]) -> None:
    body = lean(make_encoder(tmp_path / "encoder")).body
    states = torch.randn((sum(lengths), body.width), generator=torch.Generator().manual_seed(2))
    plain, rounded = (batch_of(states, lengths, round_to=n) for n in (1, 32))
    assert len(plain.states) == sum(lengths)
    assert len(rounded.states) % 32 == 0
    out = [
        nets.unit(nets.through(body, batch, 0, {}), batch, Pooling.MEAN_SQRT_LEN)[: len(lengths)]
        for batch in (plain, rounded)
    ]
    assert torch.allclose(*out, atol=1e-5)


def test_a_body_in_bf16_rounds_its_rows_and_keeps_those_of_tokens(tmp_path: Path) -> None:
    folder, n_tokens = make_encoder(tmp_path / "encoder"), sum(map(len, ROWS))
    assert n_tokens % ROWS_OF_BF16
    for dtype, n_rows in ((torch.float32, n_tokens), (torch.bfloat16, n_tokens + -n_tokens % ROWS_OF_BF16)):
        engine = lean(folder, dtype=dtype)
        assert len(engine.body.start(ROWS).states) == n_rows
        kept = engine.states(ROWS, 1)
        assert kept is not None
        assert [len(row) for row in kept] == [len(row) for row in ROWS]
        assert len(engine.batch(ROWS, range(len(ROWS)), 1, kept).states) == n_rows


def test_a_net_in_bf16_learns_as_one_in_fp32(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "encoder")
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        net = stirred(lean(folder, dtype=dtype).net(ROWS, HEAD, TrainOptions()))
        logits = net.logits([0, 3, 4], dropout=False)
        torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()  # type: ignore[no-untyped-call]
        gradients.append(torch.cat([p.grad.flatten() for p in net.trained.values() if p.grad is not None]))
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.99


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_takes_its_share_and_keeps_the_mean(dtype: torch.dtype) -> None:
    x = torch.ones((301, 333), dtype=dtype, requires_grad=True)
    torch.manual_seed(3)
    y = dropped_out(x, rate=0.1)
    assert float((y == 0).float().mean()) == pytest.approx(0.1, abs=0.005)
    assert float(y.detach().float().mean()) == pytest.approx(1, abs=0.01)
    y.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())
    torch.manual_seed(3)
    assert torch.equal(dropped_out(x, rate=0.1), y)
    assert torch.equal(dropped_out(x, rate=0.0), x)
