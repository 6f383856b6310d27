"""Words that name nothing may only become fewer, and the glossary has one entry a word."""

import re

import pytest

from tests.structure.tree import ROOT, Module, modules
from tests.structure.words import count, places

# Lower a number in the commit that removes a word; a rule whose number is 0 is kept for good.
ALLOWED = {
    "found": 313, "given": 54, "said": 93, "taught": 0, "told": 151,
    "hello": 11, "lane": 20, "lanes": 10, "law": 4, "letter": 10, "letters": 8, "market": 6, "purse": 27, "settle": 19,
    "spelt": 3, "tell": 21, "participle": 297, "fragment": 1066,
}  # fmt: skip
SLACK = 10  # how far a number may lag behind
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
    counted = count(modules(ROOT))
    grown = {rule: f"{n} and not {ALLOWED[rule]}" for rule, n in counted.items() if n > ALLOWED[rule]}
    assert not grown, f"{grown}: `python -m tests.structure.words` lists the places"
    lagging = {rule: counted[rule] for rule, n in ALLOWED.items() if n - counted[rule] > SLACK}
    assert not lagging, f"lower the numbers of this test: {lagging}"


def test_the_glossary_has_one_entry_a_word() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    words = [word.strip() for row in rows for word in row.split(",") if word.strip() not in ("word", "---")]
    assert len(words) == len(set(words)) > 100
