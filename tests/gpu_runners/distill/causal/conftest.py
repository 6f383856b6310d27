"""A random base of two layers: what packing, masks and resumption do is seen on it in milliseconds."""

from pathlib import Path

import pytest

from gpu_runners.models.causal_base import CausalBase
from tests.gpu_runners.small_base import make_base


@pytest.fixture(scope="session")
def small_base(tmp_path_factory: pytest.TempPathFactory) -> CausalBase:
    return make_base(tmp_path_factory.mktemp("bases") / "small")


@pytest.fixture(scope="session")
def base_dir(small_base: CausalBase) -> Path:
    return small_base.folder.parent
