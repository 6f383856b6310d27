"""Words that name nothing may only become fewer, and the glossary has one entry a word."""

import re

import pytest

from tests.structure.tree import ROOT, Module, modules
from tests.structure.words import allowed, count, places

SAMPLE = {
    "told = 1": ["told"],
    "def f(*, n_said): pass": ["said"],
    "class LawOfStops: pass": ["law"],
    "try:\n    pass\nexcept ValueError as given:\n    pass": ["given"],
    "match x:\n    case [found]: pass": ["found"],
    "def not_found(): pass": [],
    "def shown(row): pass": ["participle"],
    "def _checked(row): pass": ["participle"],
    "class C:\n    @property\n    def failed(self): pass": [],
    "def check_rows(row): pass": [],
    'def f():\n    """Of a locked compile."""': ["fragment"],
    'def f():\n    """Write the rows of one page."""': [],
    'def f():\n    """`of` is a word."""': ["fragment"],
}


@pytest.mark.parametrize("source", SAMPLE)
def test_a_place_is_what_gives_a_name_or_opens_a_docstring(
    source: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("words") / "x.py"
    path.write_text(source + "\n")
    found = [place.rule for place in places([Module(name="a.x", folder="a", path=path)])]
    assert found == SAMPLE[source]


def test_no_word_comes_back() -> None:
    counted, limits = count(modules(ROOT)), allowed()
    assert limits.keys() == counted.keys()
    grown = {rule: f"{n} and not {limits[rule]}" for rule, n in counted.items() if n > limits[rule]}
    assert not grown, f"{grown}: `python -m tests.structure.words` lists the places"


def test_the_glossary_has_one_entry_a_word() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    words = [word.strip() for row in rows for word in row.split(",") if word.strip() not in ("word", "---")]
    assert len(words) == len(set(words)) > 100
