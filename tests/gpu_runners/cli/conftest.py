"""An empty working folder, and the API on loopback where a test asks for it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backend.domain.artifact.tiny_kolm import keyring
from tests.gpu_runners.cli.api.small_api import SmallApi, small_api


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a keyring that trusts the test key."""
    (tmp_path / "keyring.json").write_text(json.dumps(keyring()))
    monkeypatch.setenv("KOLM_KEYRING", str(tmp_path / "keyring.json"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallApi]:
    with small_api() as api:
        monkeypatch.setenv("KOLM_API_URL", api.url)
        monkeypatch.setenv("KOLM_API_KEY", "kolm_sk_test")
        yield api
