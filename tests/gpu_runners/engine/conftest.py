"""A random base, adapters on it, and one engine for all tests that do not change it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.protocol import AdapterRef, GenerationRequest
from tests.gpu_runners.small_base import make_adapter, make_base

PROMPTS = ("the order of tea", "costs 3", 'coffee {"name": "', "漢字 ü", "of tea and coffee and the order of 12 " * 6)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> CausalBase:
    return make_base(tmp_path_factory.mktemp("bases") / "small-llama")


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> CausalBase:
    return make_base(tmp_path_factory.mktemp("bases") / "small-qwen", kind="qwen2")


@pytest.fixture(scope="session")
def adapters(base: CausalBase, tmp_path_factory: pytest.TempPathFactory) -> list[AdapterRef]:
    folder = tmp_path_factory.mktemp("adapters")
    return [make_adapter(base, folder / str(n), number=n, rank=2 if n % 2 else 4) for n in range(1, 9)]


@pytest.fixture(scope="session")
def engine(base: CausalBase) -> Iterator[TorchEngine]:
    engine = TorchEngine(base, max_running=8, n_slots=4, chunk=32)
    yield engine
    engine.stop()


@pytest.fixture
def ask(base: CausalBase) -> Callable[..., GenerationRequest]:
    """A request with the one thing changed that matters."""

    def make(text: str = PROMPTS[0], **changed: Any) -> GenerationRequest:
        ids = tuple(int(i) for i in base.tokenizer(text, add_special_tokens=False)["input_ids"])
        return GenerationRequest(**({"id": "r", "prompt": ids, "max_new_tokens": 24} | changed))

    return make
