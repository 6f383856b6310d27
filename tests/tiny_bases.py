"""kolm-tiny-1 for tests: copied out of the package once a checkout, then shared by every process and run."""

from pathlib import Path

import pytest

from deploy.embedded.home import ROOT
from gpu_runners.tiny_base.train import NAME, ensure

TINY = NAME
BASES = ROOT / "build" / "bases"


@pytest.fixture(scope="session")
def tiny_bases() -> Path:
    """A `base_dir` that holds kolm-tiny-1."""
    return ensure(BASES).parent
