"""The grammar teacher's labels: Bayes inside its language, a word model outside, both tempered exactly."""

import math
import random

import pytest

from backend.domain.spec.parsing import Spec
from workers.teachers.grammar.files import build_grammar
from workers.teachers.grammar.labels import Labeller, apply_temperature
from workers.teachers.grammar.pcfg import Grammar
from workers.teachers.prompts.candidate_and_label import label_names

NO_MEANINGS = ("", "")


def test_inside_the_language_the_label_is_bayes_rule() -> None:
    """P(x|a) = 3/4 and P(x|b) = 1/5 (a mean of two slices, 2/5 and 0): P(a|x) = 0.75 / 0.95."""
    rules = {"one": [[3, "x"], "y"], "two": [[2, "x"], [3, "z"]], "three": ["w"]}
    slices = {
        "s1": {"start": "{one}", "label": "a"},
        "s2": {"start": "{two}", "label": "b"},
        "s3": {"start": "{three}", "label": "b"},
    }
    labeller = Labeller(build_grammar(rules, slices, revision=""))
    got = labeller.log_posterior("x", ("a", "b"), NO_MEANINGS, temperature=1.0)
    assert math.exp(got["a"]) == pytest.approx(0.75 / 0.95)
    sharp = labeller.log_posterior("x", ("a", "b"), NO_MEANINGS, temperature=0.5)
    assert math.exp(sharp["a"]) == pytest.approx(0.75**2 / (0.75**2 + 0.2**2))
    assert labeller.log_posterior("y", ("a", "b"), NO_MEANINGS, temperature=1.0) == {"a": 0.0, "b": -math.inf}


@pytest.mark.parametrize("temperature", [0.0, 0.2, 1.0, 2.0])
@pytest.mark.parametrize("text", ["where is my refund", "zzz", "", "line\nbreak", "Zero stars.", "ü" * 3000])
def test_the_probabilities_sum_to_one_for_any_text(grammar: Grammar, spec: Spec, text: str, temperature: float) -> None:
    labels = tuple(label_names(spec))
    got = Labeller(grammar).log_posterior(text, labels, ("",) * 5, temperature=temperature)
    assert tuple(got) == labels
    assert math.fsum(math.exp(p) for p in got.values()) == pytest.approx(1.0)


def test_its_own_messages_are_labelled_by_their_slice_but_for_the_ambiguous_ones(grammar: Grammar, spec: Spec) -> None:
    labeller, labels, rng = Labeller(grammar), tuple(label_names(spec)), random.Random(2)
    n_right = 0
    for slice_ in (s for s in grammar.slices.values() if s.label in labels):
        for _ in range(60):
            text = grammar.sample(slice_.start, temperature=1.0, rng=rng)
            got = labeller.log_posterior(text, labels, ("",) * 5, temperature=1.0)
            n_right += got[slice_.label] > math.log(0.5)
    assert n_right >= 295
    puzzled = labeller.log_posterior("This is not what I paid for.", labels, ("",) * 5, temperature=1.0)
    assert 0.1 < math.exp(puzzled["complaint"]) < 0.9


def test_hand_written_messages_are_mostly_labelled_right_and_not_always(grammar: Grammar, spec: Spec) -> None:
    """The word model is a teacher that errs: good enough to be useful, bad enough that agreement and gates matter."""
    labeller, labels = Labeller(grammar), tuple(label_names(spec))
    rows = [
        (e.output, labeller.log_posterior(e.input, labels, ("",) * 5, temperature=0.2)) for e in spec.examples.inline
    ]
    share = sum(max(got, key=got.__getitem__) == gold for gold, got in rows) / len(rows)
    assert 0.8 < share < 1.0


def test_labels_it_does_not_know_are_told_apart_by_what_the_prompt_says_of_them(grammar: Grammar) -> None:
    labels, meanings = ("cat", "dog"), ("meows, purrs, scratches the sofa", "barks, fetches sticks, needs walks")
    got = Labeller(grammar).log_posterior("it purrs all night", labels, meanings, temperature=1.0)
    assert got["cat"] > math.log(0.8)


def test_temperature_zero_shares_ties() -> None:
    assert apply_temperature({"a": -1.0, "b": -1.0, "c": -2.0}, 0.0) == {
        "a": -math.log(2),
        "b": -math.log(2),
        "c": -math.inf,
    }


def test_no_gold_message_can_be_said_by_the_grammar(grammar: Grammar, spec: Spec) -> None:
    """The demo's held-out gold measures something only if its teacher cannot have written it."""
    for example in spec.examples.inline:
        for slice_ in grammar.slices.values():
            assert grammar.logprob(slice_.start, example.input, temperature=1.0) == -math.inf
