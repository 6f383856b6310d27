"""The start of the weights: an induction circuit, planted.

A transformer learns to copy late: first it must find "attend to the token before" in one layer and "attend to what
followed this token last time" in the next, and until both are there neither lowers the loss. At this size that takes
ten minutes of one core from random weights, and it is the same circuit every time (Olsson et al. 2022, In-context
Learning and Induction Heads). So layers 0 and 1 begin with a rough one and training refines it.

Layer 0, heads 0 and 1: by position alone, to the token before and the one before that. Their keys and queries are
one constant direction, turned so that the rotary embedding is in phase at distance 1 (2). Layer 1, head 0: where the
token before was the one that stands here and (weaker) the one before it too; by the slowly turning dimensions, which
know no distance. It writes what it finds where the unembedding reads it.
"""

import math
from typing import Any

EMBEDDING_STD = 0.15
_FAST = 6  # pairs of dimensions that tell neighbours apart
_CONSTANT = 0  # the embedding dimension that every token shares


def plant(model: Any, *, seed: int) -> None:
    """Overwrite the heads named above. Needs two kv heads of at least 32 dimensions and rotary embeddings."""
    import torch

    config = model.config
    d, size = config.hidden_size, config.head_dim
    generator = torch.Generator().manual_seed(seed)

    def orthogonal() -> Any:
        return torch.linalg.qr(torch.randn(d, d, generator=generator))[0]

    frequencies = model.model.rotary_emb.inv_freq
    slow = int((frequencies > 0.01).sum())
    content, before, before2 = torch.eye(d), orthogonal(), orthogonal()
    read = orthogonal()[:size]
    with torch.no_grad():
        embedding = model.model.embed_tokens.weight
        torch.nn.init.normal_(embedding, std=EMBEDDING_STD, generator=generator)
        # rows of one length: a key that is longer by chance would outweigh its place
        embedding[:, _CONSTANT] = 0
        embedding *= EMBEDDING_STD * math.sqrt(d) / embedding.norm(dim=1, keepdim=True)
        embedding[:, _CONSTANT] = 2 * EMBEDDING_STD
        first, second = model.model.layers[0].self_attn, model.model.layers[1].self_attn
        for head, (distance, where) in enumerate(((1, before), (2, before2))):
            rows = slice(head * size, (head + 1) * size)
            first.q_proj.weight[rows] = 0
            first.q_proj.weight[rows, _CONSTANT] = 4.0 * _in_phase(frequencies, distance)
            first.o_proj.weight[:, rows] = EMBEDDING_STD * where @ read.T
        first.k_proj.weight[:size] = 0
        first.k_proj.weight[:size, _CONSTANT] = 4.0 * _in_phase(frequencies, 0)
        first.v_proj.weight[:size] = read
        _match(second, size, slow, read, content, before, before2)
        follow = orthogonal()[:size]
        second.v_proj.weight[:size] = follow
        second.o_proj.weight[:, :size] = 8 * EMBEDDING_STD * follow.T


def _in_phase(frequencies: Any, distance: int) -> Any:
    """(head_dim,) a query that agrees best with a key of distance 0 that stands `distance` before it."""
    import torch

    angle = -frequencies * distance
    fast = torch.arange(len(frequencies)) < _FAST
    return torch.cat([torch.cos(angle) * fast, torch.sin(angle) * fast])


def _match(attention: Any, size: int, slow: int, read: Any, content: Any, before: Any, before2: Any) -> None:
    """Queries: the token here and the one before. Keys: the one before and the one before that."""
    import torch

    half = size // 2
    dims = torch.cat([torch.arange(slow, half), torch.arange(half + slow, size)])
    n_unigram = len(dims) * 5 // 8
    strength = math.sqrt(16.0 * math.sqrt(size) / n_unigram * 2)
    for rows, query, key in (
        (dims[:n_unigram], content, before),
        (dims[n_unigram:], before, before2),
    ):
        probe = read[: len(rows)]
        attention.q_proj.weight[:size][rows] = 0
        attention.q_proj.weight[rows] = strength * probe @ query.T
        attention.k_proj.weight[rows] = strength * probe @ key.T
    fast = torch.tensor([i for i in range(size) if i not in set(dims.tolist())])
    attention.q_proj.weight[fast] = 0
    attention.k_proj.weight[fast] = 0
