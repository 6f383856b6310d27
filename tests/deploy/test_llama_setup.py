import sys
from pathlib import Path

import pytest

from deploy.llama import build_server
from deploy.setup import CannotSetUp


def test_without_the_sources_of_llama_cpp_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_server, "VENV", Path(sys.prefix))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(CannotSetUp, match="pip could not fetch the sources"):
        build_server.unpack(tmp_path)


def test_without_cmake_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotSetUp, match="cmake"):
        build_server.compile_server(tmp_path, tmp_path / "build")
