"""Small teachers whose every answer can be listed, and what a rule makes of every draft of one under another.

A world is {tokens so far: distribution of the next token}; END ends an answer. `output_law` is exact: every draft,
every place to stop at, every token of a residual and every continuation is enumerated.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from scipy.stats import chisquare

from backend.domain.drafts.acceptance_rules import (
    Distribution,
    StopDistribution,
    chain,
    point_step,
    sample_stop,
    token_step,
)
from backend.domain.drafts.token_distributions import draw, process_logprobs, whole_place
from workers.teachers.grammar.files import build_grammar
from workers.teachers.grammar.pcfg import END, Frontier

Path = tuple[str, ...]
World = Mapping[Path, Distribution]
Rule = Callable[[Path, Sequence[Distribution], Sequence[Distribution]], StopDistribution]

# two slices that say similar things with other weights; a third that shares only some of its words
RULES: dict[str, object] = {
    "old": ["{hello}{verb}{what}{bye}"],
    "new": [[2, "{hello}{verb|lower}{thing}{bye}"], [1, "{verb} now"], [1, "{hello}{verb}{what}"]],
    "far": ["{verb} now", [3, "{hello}{thing}{bye}"]],
    "hello": [[3, "hi"], [1, "hello"]],
    "verb": [[2, " refund"], [1, " return"], [1, " cancel"]],
    "what": [[3, " it"], [1, " this"], [1, " that thing"]],
    "thing": [[1, " it"], [3, " that thing"], [1, " order"]],
    "bye": [[2, ""], [1, " please"]],
    "flat": [[2, "a b"], [2, "a c"], "d", "d e"],  # heaviest alternatives that tie at temperature 0
}
GRAMMAR = build_grammar(RULES, {}, revision="")


def token_rule(
    tokens: Sequence[str], target: Sequence[Distribution], drafted: Sequence[Distribution]
) -> StopDistribution:
    """Keep x_i with probability min(1, p(x_i)/q(x_i)); the residual is (p - q)+, renormalised. Exact where the draft is
    a sample of `drafted` (arXiv 2302.01318, theorem 1). Raises ImpossibleDraft.

    >>> stops = token_rule(["a"], [{"a": 0.5, "b": 0.5}], [{"a": 1.0}])
    >>> [(stop.n_kept, stop.probability) for stop in stops], stops[0].residual
    ([(0, 0.5), (1, 0.5)], {'b': 1.0})
    """
    return chain([token_step(x, p, q) for x, p, q in zip(tokens, target, drafted, strict=True)])


def point_mass_rule(tokens: Sequence[str], target: Sequence[Distribution]) -> StopDistribution:
    """Keep x_i with probability p(x_i); the residual is p without x_i, renormalised. Exact for any draft, wherever it
    comes from: it is the token rule for a proposal that could be nothing else."""
    return chain([point_step(x, p) for x, p in zip(tokens, target, strict=True)])


def grammar_world(start: str, *, temperature: float = 1.0, top_k: int | None = None) -> dict[Path, Distribution]:
    world: dict[Path, Distribution] = {}

    def visit(path: Path, frontier: Frontier) -> None:
        told = process_logprobs(list(frontier.logprobs.items()), temperature=1.0, top_k=top_k)
        place = whole_place(told)
        assert place is not None
        world[path] = place
        for token in place:
            if token != END:
                visit((*path, token), frontier.after(token))

    visit((), GRAMMAR.next_tokens(start, temperature))
    return world


def random_world(rng: random.Random, *, depth: int = 3, tokens: str = "abc") -> dict[Path, Distribution]:
    """Weights of very different sizes, some of them zero, over all answers of at most `depth` tokens."""
    world: dict[Path, Distribution] = {}

    def visit(path: Path) -> None:
        names = [*tokens, END] if len(path) < depth else [END]
        weights = [rng.random() ** 4 * (rng.random() > 0.15) for _ in names]
        weights = weights if sum(weights) else [1.0] * len(names)
        world[path] = {name: w / sum(weights) for name, w in zip(names, weights, strict=True) if w > 0}
        for name in tokens if len(path) < depth else "":
            visit((*path, name))

    visit(())
    return world


def answers(world: World, path: Path = ()) -> dict[Path, float]:
    """{whole answer that begins with `path`: its probability given `path`}, ends included."""
    if path and path[-1] == END:
        return {path: 1.0}
    found: dict[Path, float] = {}
    for token, p in world[path].items():
        for whole, rest in answers(world, (*path, token)).items():
            found[whole] = p * rest
    return found


def places(world: World, tokens: Path) -> list[Distribution]:
    """The distribution at each place of a draft; nothing where this teacher cannot get to."""
    return [world.get(tokens[:i], {}) for i in range(len(tokens))]


def output_law(
    rule: Rule, target: World, drafted: World, *, drafts: Mapping[Path, float] | None = None
) -> dict[Path, float]:
    """{answer: probability} of what comes out, exactly. `drafts` is what they are really drawn from, if not from
    `drafted`."""
    out: dict[Path, float] = defaultdict(float)
    for tokens, q in (drafts if drafts is not None else answers(drafted)).items():
        for stop in rule(tokens, places(target, tokens), places(drafted, tokens)):
            mass = q * stop.probability
            if stop.n_kept == len(tokens):
                out[tokens] += mass
            elif mass > 1e-15:
                assert stop.residual is not None
                for token, r in stop.residual.items():
                    for whole, rest in answers(target, (*tokens[: stop.n_kept], token)).items():
                        out[whole] += mass * r * rest
    return dict(out)


def total_variation(a: Mapping[Path, float], b: Mapping[Path, float]) -> float:
    return math.fsum(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in a.keys() | b.keys()) / 2


def sampled(
    rule: Rule, target: World, drafted: World, n: int, seed: int, drafts: Mapping[Path, float] | None = None
) -> dict[Path, int]:
    """{answer: how often} of `n` drafts that went through the rule, drawn and not enumerated."""
    rng = random.Random(seed)
    source = drafts if drafts is not None else answers(drafted)
    distributions: dict[Path, StopDistribution] = {}
    counts: dict[Path, int] = defaultdict(int)
    for tokens in rng.choices(list(source), list(source.values()), k=n):
        if tokens not in distributions:
            distributions[tokens] = rule(tokens, places(target, tokens), places(drafted, tokens))
        stop = sample_stop(distributions[tokens], rng.random())
        path = tokens[: stop.n_kept]
        if stop.residual is not None:
            path = (*path, draw(stop.residual, rng.random()))
        while not path or path[-1] != END:
            path = (*path, draw(target[path], rng.random()))
        counts[path] += 1
    return dict(counts)


def chi_square_p(counts: Mapping[Path, int], expected: Mapping[Path, float]) -> float:
    """p-value of the counts against the probabilities, answers that are expected fewer than 5 times taken together."""
    n = sum(counts.values())
    rows = [(counts.get(x, 0), n * p) for x, p in expected.items() if n * p >= 5]
    rest = (n - sum(seen for seen, _ in rows), n - math.fsum(e for _, e in rows))
    if len(rows) == 1 and rest[1] < 1e-9:
        return float(rest[0] == 0)
    if rest[1] < 1e-9:
        return 0.0 if rest[0] else float(chisquare(*zip(*rows, strict=True)).pvalue)
    return float(chisquare(*zip(*rows, rest, strict=True)).pvalue)
