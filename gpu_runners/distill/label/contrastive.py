"""The contrastive objective: texts of one label are brought together and those of different labels apart, whatever a
head would say of them. SetFit's objective (Tunstall et al. 2022) over the pairs of texts of a batch; with few texts a
label some tasks learn more by it and others less (docs/benchmarks/label.md)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu_runners.distill.label.nets import Net, Rows, by_length
from gpu_runners.models.tensor_files import Array

LEAST_BATCH = 16  # texts: those of one label must meet


def contrastive_loss(embedded: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """(1 - cosine)^2 of two texts of one label plus cosine^2 of two of different labels, each a mean over the pairs of
    the batch by the product of their `weights`; 0 for a kind of pair that the batch has not.

    `embedded` (b, d) unit rows, `labels` (b,), `weights` (b,)."""
    cosine = embedded @ embedded.T
    is_alike = labels[:, None] == labels[None, :]
    is_other = ~is_alike
    is_alike = is_alike & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    by_weight = weights[:, None] * weights[None, :]
    return _mean((1 - cosine) ** 2, is_alike * by_weight) + _mean(cosine**2, is_other * by_weight)


def embed_members(net: Net, rows: Rows, members: NDArray[np.int64]) -> Array:
    """(n, d) float32 unit rows of these rows of the net, without dropout."""
    parts, order = [], []
    with torch.no_grad():
        for chosen in by_length([rows[i] for i in members]):
            parts.append(net.vectors(members[chosen].tolist(), dropout=False).float().cpu().numpy())
            order += chosen
    out = np.empty((len(members), parts[0].shape[1]), dtype=np.float32)
    out[order] = np.concatenate(parts)
    return out


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    return (values * weights).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)
