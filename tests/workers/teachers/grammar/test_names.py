"""The names by which the grammar teacher knows the labels and slices of a spec: synonyms, and a slice that is part of
another."""

import math
import random
from typing import Any

import pytest

from backend.domain.spec.parsing import LabelOutput, Spec
from workers.teachers.grammar.files import BadGrammar, build_grammar
from workers.teachers.grammar.labels import Labeller
from workers.teachers.grammar.model import GrammarModel, Policy
from workers.teachers.grammar.pcfg import Grammar
from workers.teachers.prompts.candidate_and_label import candidate_request

RULES = {"one": ["x", "y"], "part": ["y"], "two": ["z"]}
SLICES = {
    "whole": {"start": "{one}", "label": "a"},
    "part": {"start": "{part}", "label": "a", "part_of": "whole"},
    "other": {"start": "{two}", "label": "b"},
}


def tiny(**changes: Any) -> Grammar:
    return build_grammar(RULES, SLICES | changes.get("slices", {}), revision="", synonyms=changes.get("synonyms"))


def test_a_synonym_is_labelled_as_the_label_it_means() -> None:
    labeller = Labeller(tiny(synonyms={"b": ["bee"]}))
    got = labeller.log_posterior("z", ("a", "bee"), ("", ""), temperature=1.0)
    assert got == {"a": -math.inf, "bee": 0.0}
    guess = labeller.log_posterior("q", ("a", "bee"), ("", ""), temperature=1.0)
    assert math.fsum(map(math.exp, guess.values())) == pytest.approx(1)


def test_two_names_of_one_label_are_two_labels_that_the_grammar_does_not_know() -> None:
    labeller = Labeller(tiny(synonyms={"b": ["bee"]}))
    assert labeller.knows(("a", "bee"))
    assert not labeller.knows(("b", "bee"))
    assert not labeller.knows(("a", "wasp"))


def test_a_part_of_a_slice_takes_nothing_from_its_labels_other_texts() -> None:
    labeller = Labeller(tiny())
    assert math.exp(labeller.log_posterior("x", ("a", "b"), ("", ""), temperature=1.0)["a"]) == pytest.approx(1)
    whole = Labeller(build_grammar(RULES, {k: v for k, v in SLICES.items() if k != "part"}, revision=""))
    for text in ("x", "y", "z", "q"):
        both = [one.log_posterior(text, ("a", "b"), ("", ""), temperature=1.0) for one in (labeller, whole)]
        assert both[0] == both[1]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"synonyms": {"c": ["d"]}}, "a label of this grammar"),
        ({"synonyms": {"a": "d"}}, "a list of names"),
        ({"synonyms": {"a": ["b"]}}, "label already"),
        ({"synonyms": {"a": ["d"], "b": ["d"]}}, "synonym of another"),
        ({"slices": {"part": SLICES["part"] | {"part_of": "other"}}}, "of its label"),
        ({"slices": {"part": SLICES["part"] | {"part_of": "nobody"}}}, "of its label"),
        ({"slices": {"part": SLICES["part"] | {"part_of": "part"}}}, "itself no part"),
        ({"slices": {"part": SLICES["part"] | {"part_of": 3}}}, "the name of a slice"),
    ],
)
def test_names_that_mean_nothing_or_two_things_are_refused(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadGrammar, match=fault):
        tiny(**changes)


def test_a_shipped_part_writes_texts_of_its_whole_and_some_of_the_whole_are_not_its(grammar: Grammar) -> None:
    rng = random.Random(3)
    parts = [s for s in grammar.slices.values() if s.part_of]
    assert [s.name for s in parts] == ["delivery_question"]
    for part in parts:
        whole = grammar.slices[part.part_of]
        mine, theirs = ([grammar.sample(s.start, temperature=1.0, rng=rng) for _ in range(60)] for s in (part, whole))
        assert all(grammar.logprob(whole.start, text, temperature=1.0) > -math.inf for text in mine)
        kept = [text for text in theirs if grammar.logprob(part.start, text, temperature=1.0) > -math.inf]
        assert 5 < len(kept) < 30


def test_a_slice_whose_label_has_another_name_is_written_by_its_own_rules(grammar: Grammar, spec: Spec) -> None:
    """With a name that nobody knows, by the words of its hint."""
    assert isinstance(spec.output, LabelOutput)
    for name, is_known in (("anything_else", True), ("zebra", False)):
        labels = [
            label.model_copy(update={"name": name if label.name == "other" else label.name})
            for label in spec.output.labels
        ]
        renamed = spec.model_copy(update={"output": spec.output.model_copy(update={"labels": labels})})
        part = spec.slices[4].model_copy(update={"label": name})
        request = candidate_request(renamed, part, n=1, temperature=1.0, seed=1)
        content = "\n\n".join(message.content for message in request.messages)
        (said,) = GrammarModel(grammar).answer(content, n=1, seed=1, policy=Policy())
        start = grammar.slices[part.name].start
        assert (grammar.logprob(start, said.text, temperature=1.0) > -math.inf) is is_known
