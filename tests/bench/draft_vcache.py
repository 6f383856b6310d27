"""vCache's own code as a peer in `draft_policy`: its policy, cache and HNSW store, unmodified, from a folder outside
the project.

vCache (Schroeder et al. 2502.03771, github.com/vcache-project/vCache, CC BY-NC-ND) is neither shipped nor adapted: this
file imports it from a folder that holds its package `vcache` and plays it as it is. `statsmodels` and `hnswlib`, which
it needs and we do not, come from a second folder. What is ours is the bridge: an embedding engine that hands over a
stream's vectors, an inference engine that answers with the slice's number, and a queue and an executor that work at
once, so that a run repeats. Client libraries that it imports and this bench never calls are stood in for by modules
whose classes cannot be made.

    git archive 5829293 vcache | tar -x -C FOLDER
    pip install --no-deps --target SITE statsmodels patsy pandas python-dateutil six packaging hnswlib
"""

import contextlib
import importlib
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.bench.draft_policy_play import Shelf, Taken, rejects_of
from tests.bench.draft_policy_streams import Stream

NEVER_CALLED = (
    "openai",
    "langchain",
    "langchain.schema",
    "langchain_community",
    "langchain_community.embeddings",
    "chromadb",
    "faiss",
    "vllm",
)
DELTAS = (0.05, 0.02)
POLICIES = {"an entry": "VerifiedDecisionPolicy", "global": "BenchmarkVerifiedGlobalDecisionPolicy"}


class _Absent:
    def __init__(self, *args: object, **named: object) -> None:
        raise RuntimeError("A library that this bench stands in for was called.")


class _StandIn(ModuleType):
    """A module any name of which is a class that cannot be made."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> type[_Absent]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent


@contextlib.contextmanager
def _stood_in() -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in NEVER_CALLED}
    sys.modules.update({name: _StandIn(name) for name in NEVER_CALLED})
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def load_vcache(folder: Path, site: Path | None) -> Any:
    """vCache's package; ImportError where it, or a library it needs, is in neither folder nor in the environment."""
    for path in filter(None, (folder, site)):
        if str(path) not in sys.path:
            sys.path.append(str(path))  # last, so that nothing of ours is hidden
    with _stood_in(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("vcache")


class _AtOnce:
    """An executor, and a queue, that does in place what it is handed."""

    def __init__(self, act: Callable[..., None] | None = None) -> None:
        self._act = act

    def submit(self, act: Callable[..., None], *args: object) -> None:
        act(*args)

    def put(self, item: object) -> None:
        assert self._act is not None
        self._act(item)


class VCacheItself:
    """One of vCache's policies on one stream. A hit takes the drafts of the entry it hits; a slice is an entry where
    vCache makes it one. Like the rewrite it is let know whether two slices match, for nothing. vCache draws from
    Python's global generator, which is seeded here: play one policy before the next is made."""

    def __init__(self, vcache: Any, policy: str, delta: float, stream: Stream, seed: int) -> None:
        self._policy = getattr(vcache, POLICIES[policy])(delta=delta)
        self._policy.setup(_config(vcache, stream))
        _without_threads(self._policy)
        random.seed(seed)

    def __call__(self, stream: Stream, shelf: Shelf) -> Taken:
        now = shelf.slice
        key = int(stream.matches[now].argmax())  # the first slice that this one matches
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn's, of an argument that will go
            is_hit, response, _ = self._policy.process_request(prompt=str(now), system_prompt=None, id_set=key)
        if not is_hit:
            return Taken()
        entry = int(response)
        return Taken(drafts=tuple((entry, place) for place in rejects_of(stream, entry, 0)))


def _config(vcache: Any, stream: Stream) -> Any:
    class Embedding(vcache.EmbeddingEngine):  # type: ignore[misc]
        def get_embedding(self, text: str) -> Any:
            return stream.vectors[int(text)]

    class Inference(vcache.InferenceEngine):  # type: ignore[misc]
        def create(self, prompt: str, system_prompt: str | None = None) -> str:
            return prompt

    return vcache.VCacheConfig(
        inference_engine=Inference(),
        embedding_engine=Embedding(),
        vector_db=vcache.HNSWLibVectorDB(max_capacity=len(stream)),
        embedding_metadata_storage=vcache.InMemoryEmbeddingMetadataStorage(),
        eviction_policy=vcache.NoEvictionPolicy(),
        similarity_evaluator=vcache.BenchmarkComparisonSimilarityEvaluator(),
    )


def _without_threads(policy: Any) -> None:
    """Put the bridge's queue and executor in the place of a set-up policy's own, if it has them."""
    if getattr(policy, "callback_queue", None) is None:
        return
    act = policy.callback_queue.callback_function
    policy.shutdown()
    policy.callback_queue, policy.executor = _AtOnce(act), _AtOnce()
