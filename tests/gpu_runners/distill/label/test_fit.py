"""One fit over a random encoder that has a layer which no text goes through."""

from pathlib import Path

import numpy as np
import torch

from backend.domain.jobs.runner_jobs import TrainOptions
from gpu_runners.distill.label.dataset import Pair
from gpu_runners.distill.label.fit import Fit
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.models.bases import open_base
from gpu_runners.models.encoder import load_body
from gpu_runners.models.label_adapter import Head
from tests.gpu_runners.small_encoders import make_encoder


def fit_over(body: torch.nn.Module) -> Fit:
    pairs = [Pair(text="", label=i % 2, weight=1.0) for i in range(8)]
    head = Head(weight=np.zeros((2, 32), np.float32), bias=np.zeros(2, np.float32))
    options = TrainOptions(epochs=3, batch_size=4, precision="fp32")
    rows = [[2, 10 + i, 20 + i, 3] for i in range(8)]
    return Fit(body=body, pairs=pairs, rows=rows, head=head, options=options, precision="fp32", pooling="mean")


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
