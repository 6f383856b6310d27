"""The programs that lie beside an exported student are as short as the documents promise."""

from pathlib import Path

import pytest

from gpu_runners.exports.onnx.runners import Placing, write_label_runners, write_span_runners

MOST = 10  # lines of code


def code_lines(path: Path) -> list[str]:
    lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "//"))]


@pytest.mark.parametrize("has_rules", [False, True])
@pytest.mark.parametrize("kind", ["label", "spans"])
def test_a_runner_has_at_most_ten_lines_of_code(tmp_path: Path, kind: str, has_rules: bool) -> None:
    if kind == "label":
        write_label_runners(tmp_path, has_rules=has_rules)
    else:
        write_span_runners(tmp_path, Placing.WORD_PIECE, has_rules=has_rules)
    programs = [tmp_path / "run.py", tmp_path / "run.mjs"]
    assert {path.name: len(code_lines(path)) for path in programs if len(code_lines(path)) > MOST} == {}
    assert all(len(line) <= 120 for path in programs for line in path.read_text("utf-8").splitlines())


def test_the_modules_beside_a_runner_import_nothing_of_kolm(tmp_path: Path) -> None:
    write_span_runners(tmp_path, Placing.WORD_PIECE, has_rules=False)
    modules = {path.name for path in tmp_path.glob("*.py")}
    assert modules == {"run.py", "spans.py", "kinds.py", "viterbi.py", "word_boundaries.py"}
    lines = [line for name in modules for line in (tmp_path / name).read_text("utf-8").splitlines()]
    imports = [line for line in lines if line.startswith(("from ", "import "))]
    assert not any("gpu_runners" in line or "backend" in line for line in imports)
    assert "from viterbi import likeliest" in imports
