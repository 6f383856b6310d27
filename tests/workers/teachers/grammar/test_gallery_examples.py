"""The gold of the gallery's newer tasks is a person's, not the grammar's; and the spec is short enough to read."""

import math
from collections import Counter

import pytest
import yaml

from backend.domain.spec.gold import normalise
from deploy.embedded.home import ROOT
from workers.teachers.grammar.files import shipped_grammar

NAMES = ("sentiment", "pii-flag", "urgency", "spam", "language")
MOST_LINES = 40  # beside the gold


@pytest.fixture(scope="module")
def grammar():
    return shipped_grammar()


@pytest.fixture(params=NAMES)
def text(request):
    return (ROOT / "examples" / f"{request.param}.yaml").read_text(encoding="utf-8")


def test_no_row_is_a_text_of_the_grammar(grammar, text):
    for row in yaml.safe_load(text)["examples"]["inline"]:
        for slice_ in grammar.slices.values():
            if slice_.label == row["output"]:
                assert grammar.logprob(slice_.start, row["input"], temperature=1.0) == -math.inf, row


def test_the_rows_are_different_and_every_label_has_as_many(text):
    spec = yaml.safe_load(text)
    rows = spec["examples"]["inline"]
    assert len({normalise(row["input"]) for row in rows}) == len(rows) >= 100
    counts = Counter(row["output"] for row in rows)
    assert set(counts) == {label["name"] for label in spec["output"]["labels"]}
    assert len(set(counts.values())) == 1


def test_the_spec_is_short_and_its_labels_are_slices_of_the_grammar(grammar, text):
    spec = yaml.safe_load(text)
    assert len([line for line in text.splitlines() if not line.startswith("    - {output")]) <= MOST_LINES
    for label in spec["output"]["labels"]:
        assert grammar.slices[label["name"]].label == label["name"]
