"""The grammar's probabilities, against brute force: every derivation enumerated."""

import itertools
import math
import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.teachers.grammar.files import DEFAULT_GRAMMAR, BadGrammar, build_grammar, load_grammar
from workers.teachers.grammar.pcfg import END, Grammar, tokenize

AMBIGUOUS = {
    "start": [[3, "{a}{b}"], [1, "{b}{b}"], "x  y", "{c|lower} {c|upper}"],
    "a": ["x", "x x", [0.5, ""]],
    "b": [" x", "", [2, " y"], "x"],
    "c": ["Hi. ", "it's"],
}
TEMPERATURES = st.sampled_from([0.0, 0.05, 0.2, 0.7, 1.0, 1.3, 4.0])


@st.composite
def small_grammars(draw: st.DrawFn) -> Grammar:
    """Acyclic, often ambiguous: few letters, spaces, empty alternatives."""
    names = ["start", "a", "b", "c"]
    rules: dict[str, object] = {}
    for depth, name in enumerate(names):
        pieces = ["x", "y", " ", "xy", " x", ""] + ["{" + deeper + "}" for deeper in names[depth + 1 :]]
        alternative = st.lists(st.sampled_from(pieces), min_size=1, max_size=3).map("".join)
        weighted = st.tuples(st.sampled_from([0.25, 1.0, 3.0]), alternative).map(list)
        rules[name] = draw(st.lists(weighted, min_size=1, max_size=3))
    return build_grammar(rules, {}, revision="")


def brute_force(grammar: Grammar, temperature: float) -> dict[str, float]:
    """{text: probability}: derivations of the same text added up."""
    found: dict[str, list[float]] = defaultdict(list)
    for text, p in grammar.language("start", temperature=temperature):
        found[text].append(p)
    return {text: math.fsum(parts) for text, parts in found.items()}


def brute_force_tokens(language: dict[str, float], text: str) -> list[float]:
    """P(token | tokens before) of `text`, by filtering the enumerated language, then P(end | all tokens)."""
    tokens = tokenize(text)
    masses = []
    for n in range(len(tokens) + 1):
        masses.append(math.fsum(p for other, p in language.items() if tokenize(other)[:n] == tokens[:n]))
    masses.append(language[text])
    return [after / before for before, after in itertools.pairwise(masses)]


@given(small_grammars(), TEMPERATURES)
def test_a_texts_probability_is_the_sum_over_its_derivations(grammar: Grammar, temperature: float) -> None:
    language = brute_force(grammar, temperature)
    assert math.fsum(language.values()) == pytest.approx(1.0, abs=1e-9)
    for text, p in language.items():
        assert math.exp(grammar.logprob("start", text, temperature=temperature)) == pytest.approx(p, rel=1e-9)


@given(small_grammars(), TEMPERATURES)
def test_a_tokens_probability_is_the_conditional_over_all_texts(grammar: Grammar, temperature: float) -> None:
    language = brute_force(grammar, temperature)
    for text in list(language)[:12]:
        logprobs = grammar.token_logprobs("start", text, temperature=temperature)
        expected = brute_force_tokens(language, text)
        assert [math.exp(p) for p in logprobs] == pytest.approx(expected, rel=1e-7, abs=1e-12)
        assert math.fsum(logprobs) == pytest.approx(grammar.logprob("start", text, temperature=temperature), abs=1e-7)


@given(small_grammars(), TEMPERATURES)
def test_walking_all_derivations_at_once_gives_the_same_tokens(grammar: Grammar, temperature: float) -> None:
    """The frontier is a second algorithm: it must agree with the chart, and sum to one at every place."""
    for text in list(brute_force(grammar, temperature))[:6]:
        frontier = grammar.next_tokens("start", temperature)
        logprobs = grammar.token_logprobs("start", text, temperature=temperature)
        for token, logprob in zip([*tokenize(text), END], logprobs, strict=True):
            assert math.fsum(math.exp(p) for p in frontier.logprobs.values()) == pytest.approx(1.0, abs=1e-9)
            assert frontier.logprobs[token] == pytest.approx(logprob, abs=1e-7)
            if token != END:
                frontier = frontier.after(token)


def test_the_worked_example() -> None:
    """start -> a b, with "x" + " x" and "x x" + "" the same text: 1/3 * 1/2 + 2/3 * 1/2 = 1/2."""
    rules = {"start": ["{a}{b}"], "a": ["x", [2, "x x"]], "b": [" x", ""]}
    grammar = build_grammar(rules, {}, revision="")
    assert math.exp(grammar.logprob("start", "x x", temperature=1.0)) == pytest.approx(1 / 2)
    assert math.exp(grammar.logprob("start", "x x", temperature=0.5)) == pytest.approx(1 / 5 * 1 / 2 + 4 / 5 * 1 / 2)
    # x: 1/6, x x: 1/2, x x x: 1/3; after "x" the text goes on in 5 of 6 cases
    tokens = [math.exp(p) for p in grammar.token_logprobs("start", "x x", temperature=1.0)]
    assert tokens == pytest.approx([1, 5 / 6, 3 / 5])


def test_filters_and_ambiguity_together_still_sum_to_one() -> None:
    grammar = build_grammar(AMBIGUOUS, {}, revision="")
    language = brute_force(grammar, 0.7)
    assert "hi.  IT'S" in language
    for text, p in language.items():
        assert math.exp(grammar.logprob("start", text, temperature=0.7)) == pytest.approx(p, rel=1e-9)


def test_samples_follow_the_stated_probabilities() -> None:
    grammar = build_grammar(AMBIGUOUS, {}, revision="")
    rng = random.Random(5)
    n = 20_000
    counts = Counter(grammar.sample("start", temperature=0.7, rng=rng) for _ in range(n))
    language = brute_force(grammar, 0.7)
    assert set(counts) <= set(language)
    chi2 = sum((counts[text] - n * p) ** 2 / (n * p) for text, p in language.items())
    degrees = len(language) - 1
    assert chi2 < degrees + 4 * math.sqrt(2 * degrees)  # four standard deviations, and the seed is fixed


def test_temperature_zero_is_the_limit_of_small_temperatures() -> None:
    grammar = build_grammar({"start": [[2, "a"], [2, "b"], [1, "c"]]}, {}, revision="")
    for temperature in (0.0, 1e-3):
        assert grammar.logprob("start", "a", temperature=temperature) == pytest.approx(math.log(0.5))
    assert grammar.logprob("start", "c", temperature=0.0) == -math.inf


@pytest.mark.parametrize("text", ["", "zebra", "Please refund", "please\nrefund me", "x" * 5000, "Hi, Hi, "])
def test_text_outside_the_language_has_no_probability(text: str) -> None:
    grammar = load_grammar(DEFAULT_GRAMMAR.read_bytes())
    start = grammar.slices["direct_request"].start
    assert grammar.logprob(start, text, temperature=1.0) == -math.inf
    logprobs = grammar.token_logprobs(start, text, temperature=1.0)
    assert len(logprobs) == len(tokenize(text)) + 1
    assert -math.inf in logprobs


@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        ({"a": ["{b}"], "b": ["{a}"]}, "circle"),
        ({"a": ["{a|lower}"]}, "no rule|circle"),
        ({"a": ["{nobody}"]}, "no rule"),
        ({"a": ["{a"]}, "braces"),
        ({"a": ["{}"]}, "braces"),
        ({"a": []}, "alternatives"),
        ({"a": [[0, "x"]]}, "weight"),
        ({"a": [[-1, "x"]]}, "weight"),
        ({"a": [3]}, "weight"),
        ({"a": ["x\ty"]}, "white space"),
        ({"a": ["{b|shout}"], "b": ["x"]}, "no rule or filter"),
    ],
)
def test_a_grammar_that_breaks_a_rule_is_refused(rules: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadGrammar, match=fault):
        build_grammar(rules, {}, revision="")


def test_the_shipped_grammar_says_thousands_of_things_and_repeats_itself_a_little() -> None:
    grammar = load_grammar(DEFAULT_GRAMMAR.read_bytes())
    rng = random.Random(1)
    for slice_ in grammar.slices.values():
        texts = [grammar.sample(slice_.start, temperature=1.0, rng=rng) for _ in range(2000)]
        assert len(set(texts)) > (1000 if slice_.part_of else 1200)
        assert max(len(text) for text in texts) < 300
        assert min(len(text) for text in texts) >= 8


def test_the_revision_is_the_hash_of_the_file() -> None:
    data = DEFAULT_GRAMMAR.read_bytes()
    assert load_grammar(data).revision != load_grammar(data + b"\n# one comment more\n").revision
