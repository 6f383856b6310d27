"""The example of longer messages: about sixty tokens each, no text in two slices, gold that the
grammar did not write."""

import math
import random
from collections import Counter

import pytest
import yaml

from backend.domain.spec.parsing import Spec, parse_spec
from tests.workers.teachers.grammar.test_order_examples import EXAMPLES, sentences
from workers.teachers.grammar.judge import judge_numbers
from workers.teachers.grammar.judge_reader import AskedNumbers, NumberedTexts
from workers.teachers.grammar.labels import Labeller
from workers.teachers.grammar.pcfg import Grammar, tokenize
from workers.teachers.prompts.candidate_and_label import label_names

SLICES = ("water_trouble", "power_failure", "lights_out", "no_heat", "door_trouble", "vermin_seen")


@pytest.fixture(scope="module")
def desk() -> Spec:
    return parse_spec(yaml.safe_load((EXAMPLES / "repair-desk.yaml").read_text()))


@pytest.fixture(scope="module")
def reports(grammar: Grammar) -> dict[str, list[str]]:
    rng = random.Random(5)
    return {
        name: [grammar.sample(grammar.slices[name].start, temperature=1.0, rng=rng) for _ in range(600)]
        for name in SLICES
    }


def test_the_slices_of_the_example_are_the_grammars(grammar: Grammar, desk: Spec) -> None:
    """`lights_out` is the next version's."""
    assert [part.name for part in desk.slices] == [name for name in SLICES if name != "lights_out"]
    assert all(grammar.slices[part.name].label == part.label for part in desk.slices)


@pytest.mark.parametrize("name", SLICES)
def test_a_report_is_about_sixty_tokens_and_hardly_ever_comes_twice(reports: dict[str, list[str]], name: str) -> None:
    """Of 600 draws from M equally likely texts, about 180,000 / M are pairs of equals."""
    lengths = [len(tokenize(text)) + 1 for text in reports[name]]
    assert min(lengths) >= 45
    assert max(lengths) <= 80
    assert 58 <= sum(lengths) / len(lengths) <= 66
    assert len(set(reports[name])) >= 599


def test_the_judge_keeps_a_slices_own_reports_and_none_of_the_others(
    grammar: Grammar, reports: dict[str, list[str]]
) -> None:
    drafts = tuple(enumerate((text for name in SLICES for text in reports[name][:12]), start=1))
    for at, name in enumerate(SLICES):
        part = NumberedTexts(slice_name=name, hint="", label=None, texts=drafts)
        asked = AskedNumbers(parts=(part,), asks_misplaced=False, member="")
        said = judge_numbers(asked, lambda part: (grammar, grammar.slices[part.slice_name].start), max_tokens=100)
        assert said.text == f"{12 * at + 1}-{12 * at + 12}"


def test_a_report_has_one_label_for_certain(grammar: Grammar, desk: Spec, reports: dict[str, list[str]]) -> None:
    labeller, labels = Labeller(grammar), tuple(label_names(desk))
    for name in SLICES:
        for text in reports[name][:8]:
            got = labeller.log_posterior(text, labels, ("",) * 5, temperature=1.0)
            assert got[grammar.slices[name].label] == 0.0


def test_gold_is_of_every_label_and_shares_no_sentence_with_the_grammar(
    grammar: Grammar, desk: Spec, reports: dict[str, list[str]]
) -> None:
    theirs = {sentence for texts in reports.values() for text in texts[:200] for sentence in sentences(text)}
    assert set(Counter(row.output for row in desk.examples.inline).values()) == {20}
    for row in desk.examples.inline:
        starts = [grammar.slices[name].start for name in SLICES]
        assert all(grammar.logprob(start, row.input, temperature=1.0) == -math.inf for start in starts)
        assert not theirs & set(sentences(row.input)), row.input


def test_gold_is_mostly_labelled_right_and_not_always(grammar: Grammar, desk: Spec) -> None:
    labeller, labels = Labeller(grammar), tuple(label_names(desk))
    got = [
        (row.output, labeller.log_posterior(row.input, labels, ("",) * 5, temperature=0.2))
        for row in desk.examples.inline
    ]
    assert 0.7 < sum(max(said, key=said.__getitem__) == gold for gold, said in got) / len(got) < 1.0
