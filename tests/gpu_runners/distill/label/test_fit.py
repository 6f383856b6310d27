"""One fit over a random encoder: state, and what its loss counts."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backend.domain.encoders.sentence_settings import Pooling
from backend.domain.jobs.runner_jobs import TrainOptions
from gpu_runners.distill.label import fit as fitting
from gpu_runners.distill.label.baseline import fit_head
from gpu_runners.distill.label.contrastive import embed_members
from gpu_runners.distill.label.dataset import Pair
from gpu_runners.distill.label.fit import Fit
from gpu_runners.distill.label.nets import Engine, LeanEngine, load_engine
from gpu_runners.distill.label.peft_net import PeftEngine
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.models.bases import open_base
from gpu_runners.models.encoder import load_body
from gpu_runners.models.label_adapter import Head
from tests.gpu_runners.small_encoders import make_encoder

ROWS = [[2, 10 + i, 20 + i, 3] for i in range(8)]
HEAD = Head(weight=np.zeros((2, 32), np.float32), bias=np.zeros(2, np.float32))


def fit_over(body: torch.nn.Module) -> Fit:
    engine = PeftEngine(body, pooling=Pooling.MEAN, precision="fp32")
    return fit_of(engine, [Pair(text="", label=i % 2, weight=1.0) for i in range(8)])


def fit_of(
    engine: Engine, pairs: list[Pair], rows: list[list[int]] = ROWS, n_contrastive: int = 0, **options: Any
) -> Fit:
    chosen = dataclasses.replace(TrainOptions(epochs=3, batch_size=4, precision="fp32"), **options)
    net, members = engine.net(rows, HEAD, chosen), np.arange(len(pairs))
    return Fit(
        net=net,
        pairs=pairs,
        rows=rows,
        members=members,
        n_labels=2,
        options=chosen,
        n_contrastive=n_contrastive,
    )


def test_a_layer_without_a_gradient_is_in_a_checkpoint_and_the_run_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    make_encoder(tmp_path / "encoder")
    body = load_body(open_base("encoder", base_dir=tmp_path))
    body.register_module("unused", torch.nn.Linear(8, 8))
    with deterministic(7):
        fit = fit_over(body)
        fit.advance()
        saved = {name: tensor.clone() for name, tensor in fit.tensors().items()}
        fit.advance()
        whole = {name: tensor.clone() for name, tensor in fit.tensors().items()}
        resumed = fit_over(body)
        resumed.restore(saved, step=1)
        resumed.advance()
    assert any("unused" in name for name in whole)
    assert not any("unused" in name for name in whole if name.startswith("adam_"))
    assert resumed.tensors().keys() == whole.keys()
    assert all(torch.equal(tensor, whole[name]) for name, tensor in resumed.tensors().items() if name != "rng")


def lean(tmp_path: Path, *, dropout: float = 0.0) -> Engine:
    make_encoder(tmp_path / "encoder")
    base = open_base("encoder", base_dir=tmp_path)
    engine = load_engine(base, device=torch.device("cpu"), pooling=Pooling.MEAN, precision="fp32")
    assert isinstance(engine, LeanEngine)
    engine.body.dropout = dropout
    return engine


@pytest.mark.parametrize("layers", [0, 1])
def test_a_lean_run_goes_on_to_the_same_bytes(tmp_path: Path, layers: int) -> None:
    engine, pairs = lean(tmp_path, dropout=0.1), [Pair(text="", label=i % 2, weight=1.0) for i in range(8)]
    with deterministic(7):
        fit = fit_of(engine, pairs, layers=layers)
        fit.advance()
        saved = {name: tensor.clone() for name, tensor in fit.tensors().items()}
        fit.advance()
        resumed = fit_of(engine, pairs, layers=layers)
        resumed.restore(saved, step=1)
        resumed.advance()
    whole = fit.tensors()
    assert all(torch.equal(tensor, whole[name]) for name, tensor in resumed.tensors().items())
    assert any("qkv" in name for name in whole if name.startswith("adam_m."))


def test_a_soft_target_counts_as_one_pair_of_each_label_of_its_share(tmp_path: Path) -> None:
    """Two copies of weight w p and w (1 - p) pull as one pair of weight w with the targets p and 1 - p does."""
    engine = lean(tmp_path)
    soft = [Pair(text="", label=0, weight=2.0, targets=((0, 750_000), (1, 250_000)))]
    hard = [Pair(text="", label=0, weight=1.5), Pair(text="", label=1, weight=0.5)]
    one = fit_of(engine, soft, ROWS[:1], dropout=0.0)
    two = fit_of(engine, hard, [ROWS[0], ROWS[0]], dropout=0.0)
    assert one.advance() == pytest.approx(two.advance(), rel=1e-5)
    for name, parameter in one.net.trained.items():
        assert torch.allclose(parameter, two.net.trained[name], atol=1e-5)


def test_a_pair_counts_by_its_weight(tmp_path: Path) -> None:
    engine = lean(tmp_path)
    pairs = [Pair(text="", label=0, weight=3.0), Pair(text="", label=1, weight=1.0)]
    fit = fit_of(engine, pairs, ROWS[:2], dropout=0.0)
    with torch.no_grad():
        fit.net.trained["head.bias"].copy_(torch.tensor([1.0, 0.0]))
    right = np.log1p(np.exp(-1.0))
    assert fit.advance() == pytest.approx((3 * right + (right + 1.0)) / 4, abs=1e-5)


def test_only_members_train(tmp_path: Path) -> None:
    engine, pairs = lean(tmp_path), [Pair(text="", label=i % 2, weight=1.0) for i in range(8)]
    chosen, few = TrainOptions(epochs=2, batch_size=2, precision="fp32", dropout=0.0), [1, 4, 6]
    net = engine.net(ROWS, HEAD, chosen)
    part = Fit(net=net, pairs=pairs, rows=ROWS, members=np.array(few), n_labels=2, options=chosen)
    alone = fit_of(engine, [pairs[i] for i in few], [ROWS[i] for i in few], epochs=2, batch_size=2, dropout=0.0)
    assert part.n_steps == alone.n_steps == 4
    assert [part.advance() for _ in range(4)] == pytest.approx([alone.advance() for _ in range(4)], rel=1e-4)


def test_contrastive_epochs_leave_the_head_alone_and_end_with_one_of_their_vectors(tmp_path: Path) -> None:
    pairs = [Pair(text="", label=i % 2, weight=1.0) for i in range(8)]
    fit = fit_of(lean(tmp_path), pairs, n_contrastive=2, epochs=4, batch_size=4, dropout=0.0)
    for _ in range(4):
        fit.advance()
    assert not fit.net.trained["head.weight"].any()
    assert fit.is_contrastive
    head = fit_head(embed_members(fit.net, ROWS, fit.members), pairs, n_labels=2)
    fit.advance()
    assert not fit.is_contrastive
    now = fit.net.trained["head.weight"].detach().numpy()
    step = fitting.AFTER_CONTRASTIVE * fit.options.learning_rate  # a first step of Adam, which begins anew
    assert np.abs(now - head.weight).max() == pytest.approx(step, rel=0.05)


@pytest.mark.parametrize("has_peft", [False, True])
def test_a_fit_goes_on_from_either_objective_to_the_same_bytes(tmp_path: Path, has_peft: bool) -> None:
    lean_one, pairs = lean(tmp_path, dropout=0.1), [Pair(text="", label=i % 2, weight=1.0) for i in range(8)]

    def begun() -> Fit:
        body = load_body(open_base("encoder", base_dir=tmp_path))
        engine = PeftEngine(body, pooling=Pooling.MEAN, precision="fp32") if has_peft else lean_one
        return fit_of(engine, pairs, n_contrastive=2, epochs=4, batch_size=4)

    with deterministic(7):
        fit, saved = begun(), []
        while not fit.is_done:
            fit.advance()
            saved.append({name: tensor.clone() for name, tensor in fit.tensors().items()})
        for step in (1, 4, 5, 6):  # among the contrastive ones, their last, the first and the second after them
            resumed = begun()
            resumed.restore({name: tensor.clone() for name, tensor in saved[step - 1].items()}, step=step)
            while not resumed.is_done:
                resumed.advance()
            assert all(torch.equal(tensor, saved[-1][name]) for name, tensor in resumed.tensors().items())


@pytest.fixture
def resting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "FEWEST_RESTING", 2)


def test_few_pairs_never_rest(tmp_path: Path) -> None:
    fit = fit_of(lean(tmp_path), [Pair(text="", label=0, weight=1.0)] * 8, epochs=7, batch_size=2, dropout=0.0)
    while not fit.is_done:
        fit.advance()
    assert fit.step == 7 * 4


@pytest.mark.usefixtures("resting")
def test_pairs_that_are_learned_rest_and_come_back_and_the_last_epoch_trains_all(tmp_path: Path) -> None:
    engine, pairs = lean(tmp_path), [Pair(text="", label=0, weight=1.0) for _ in range(7)]
    odd = Pair(text="", label=1, weight=1.0)
    fit = fit_of(engine, [*pairs, odd], epochs=7, batch_size=2, learning_rate=1e-9, dropout=0.0)
    with torch.no_grad():  # sure of label 0, and so of all but the odd one
        fit.net.trained["head.bias"].copy_(torch.tensor([9.0, 0.0]))
    trained = {fit.epoch: fit.n_trained}
    while not fit.is_done:
        fit.advance()
        trained[fit.epoch] = fit.n_trained
    assert [trained[epoch] for epoch in range(7)] == [8, 8, 1, 1, 8, 1, 8]
    assert fit.n_steps == fit.step == 4 + 4 + 1 + 1 + 4 + 1 + 4


@pytest.mark.usefixtures("resting")
def test_a_soft_target_is_learned_where_nothing_more_can_be(tmp_path: Path) -> None:
    engine = lean(tmp_path)
    soft = [Pair(text="", label=0, weight=1.0, targets=((0, 500_000), (1, 500_000))) for _ in range(4)]
    fit = fit_of(engine, soft, ROWS[:4], epochs=4, batch_size=2, learning_rate=1e-9, dropout=0.0)
    for _ in range(5):  # the loss of two equal labels is log 2, and its least
        fit.advance()
    assert (fit.epoch, fit.n_trained) == (2, 2)  # an epoch has a step


@pytest.mark.usefixtures("resting")
def test_a_run_goes_on_in_an_epoch_in_which_pairs_rest(tmp_path: Path) -> None:
    engine, pairs = lean(tmp_path, dropout=0.1), [Pair(text="", label=i % 2, weight=1.0) for i in range(8)]
    options = {"epochs": 5, "batch_size": 2, "learning_rate": 0.1}
    with deterministic(7):
        fit = fit_of(engine, pairs, **options)
        while fit.epoch < 3:
            fit.advance()
        assert fit.n_trained < len(pairs)
        saved, at = {name: tensor.clone() for name, tensor in fit.tensors().items()}, fit.step
        while not fit.is_done:
            fit.advance()
        resumed = fit_of(engine, pairs, **options)
        resumed.restore(saved, step=at)
        while not resumed.is_done:
            resumed.advance()
    whole = fit.tensors()
    assert resumed.step == fit.step
    assert all(torch.equal(tensor, whole[name]) for name, tensor in resumed.tensors().items())
