"""docs/architecture.md names what is there: every path of it leads to a file or a folder, and in the table of decisions
every name is a name of the file beside it."""

import re

import pytest

from tests.structure.tree import PRODUCT, ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DECISIONS = re.findall(r"^\| ([^|]+\?) \| ([^|]+) \|$", PAGE, re.MULTILINE)
PATHS = sorted(
    {text for text in re.findall(r"`([\w.]+(?:/[\w.]+)+)`", PAGE) if not text.startswith(("v1/", ".well-known"))}
)
KNOWN = {
    f"/{path.relative_to(ROOT).with_suffix('') if path.suffix == '.py' else path.relative_to(ROOT)}"
    for room in (*PRODUCT, "docs", "tests")
    for path in (ROOT / room).rglob("*")
    if "node_modules" not in path.parts and (path.is_dir() or path.suffix == ".py")
}


@pytest.mark.parametrize("text", PATHS)
def test_a_path_leads_somewhere(text: str) -> None:
    """`steps/slicing` is short for workers/steps/slicing.py, `leases.fenced_transaction` a name in a module."""
    place = text.removesuffix(".py")
    whole, _, last = place.rpartition("/")
    ends = {f"/{place}", f"/{whole}/{last.partition('.')[0]}"}
    assert any(known.endswith(end) for known in KNOWN for end in ends), text


@pytest.mark.parametrize("question", [question for question, _ in DECISIONS])
def test_a_decision_is_where_the_table_says(question: str) -> None:
    pieces = re.findall(r"`([^`]+)`", dict(DECISIONS)[question])
    source = ""
    for piece in pieces:
        if "/" in piece:
            source = (ROOT / piece).read_text(encoding="utf-8")
        else:
            assert re.search(rf"^\s*(?:async )?(?:def|class) {piece}\b|^{piece}\b", source, re.MULTILINE), piece
    assert source


def test_the_ten_questions_of_a_newcomer_are_answered() -> None:
    assert len(DECISIONS) >= 10
