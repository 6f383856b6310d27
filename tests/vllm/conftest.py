"""One engine and one tiny model for all tests here. Skipped as a whole where .venv-vllm is not installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vllm import engine
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.vllm.teacher import VllmTeacher


@pytest.fixture(scope="session")
def tiny_model_folder() -> Path:
    if not engine.COMMAND.exists():
        pytest.skip("no vLLM here: `make setup-vllm` installs one into .venv-vllm")
    return engine.made_model()


@pytest.fixture(scope="session")
def vllm(tiny_model_folder: Path) -> Iterator[engine.Engine]:
    """With our proposer, started as docs/drafts.md says."""
    with engine.running(tiny_model_folder, speculative=engine.DRAFTS, arguments=engine.AS_TEACHER) as running:
        yield running


@pytest.fixture
def teacher(vllm: engine.Engine) -> Iterator[OpenAICompatibleTeacher]:
    """The plain production client."""
    made = OpenAICompatibleTeacher(**engine.teacher_fields(vllm))
    yield made
    made.close()


@pytest.fixture
def vllm_teacher(vllm: engine.Engine) -> Iterator[VllmTeacher]:
    made = VllmTeacher(**engine.teacher_fields(vllm))
    yield made
    made.close()
