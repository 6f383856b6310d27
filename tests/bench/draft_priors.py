"""Fit the priors of `backend/domain/drafts/priors.py` and write that module.

    python -m tests.bench.draft_priors [DATA] [--streams N] [--write]

The data are the streams of `draft_pool` over the seven families `chosen` (five domains of CLINC150, two parts of
BANKING77; the others are for measuring), seed 1, in which everything that a slice finds is pooled in random order: the
verdicts on its picks are what a product learns from. A kinship's prior is the mixture of the grid's sigmoids under
which the streams' verdicts are likeliest (nonparametric maximum likelihood by EM, one sigmoid a stream); those
that weigh least are left out, and the others fitted again.
"""

import argparse
import datetime
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.domain.drafts import priors
from backend.domain.drafts.calibration import CEILINGS, THRESHOLDS, WIDTHS, SourceCount, flat_curve, update
from backend.domain.drafts.vocabulary import Kinship
from tests.bench.banking77_data import data_folder
from tests.bench.draft_policy_texts import read_texts
from tests.bench.draft_pool_play import Questions, play_pool
from tests.bench.draft_pool_policies import Fixed
from tests.bench.draft_pool_prices import Scenario, Spent
from tests.bench.draft_pool_texts import chosen_families
from tests.bench.draft_pool_world import World, draw_worlds, filter_rates

N_STREAMS = 84
SEED = 1
N_STEPS = 2000
LEAST_WEIGHT = 0.02
ANY_PRICE = Scenario(name="", input=1, output=5, length=60)


class Everything(Fixed):
    """Pools whatever is there, also what a local filter would leave out, and keeps the verdicts by kinship."""

    uses_filter = False

    def __init__(self, seed: int) -> None:
        super().__init__(2.0, 0.6, seed=seed)
        self.counts: dict[Kinship, list[SourceCount]] = {kinship: [] for kinship in Kinship}

    def learn(self, counts: Mapping[int, Sequence[SourceCount]], spent: Mapping[int, Spent]) -> None:
        for of_slice in counts.values():
            for count in of_slice:
                self.counts[count.kinship].append(count)


def verdicts_of(world: World, seed: int) -> dict[Kinship, list[SourceCount]]:
    policy = Everything(seed)
    play_pool(world, policy, Questions(scenario=ANY_PRICE, are_frugal=True))
    return policy.counts


def fit(streams: Sequence[Sequence[SourceCount]]) -> list[priors.Atom]:
    """The mixture's atoms, heaviest first; `streams` without verdicts say nothing."""
    logs = np.stack([_log_likelihoods(counts) for counts in streams if counts])
    likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights = _mixture(likelihoods, N_STEPS)
    places = np.unique((likelihoods * weights).argmax(axis=1))  # each stream's likeliest: many sigmoids are alike
    while True:
        weights = _mixture(likelihoods[:, places], N_STEPS // 10)
        if weights.min() >= LEAST_WEIGHT:
            break
        places = np.delete(places, weights.argmin())
    shape = (len(THRESHOLDS), len(WIDTHS), len(CEILINGS))
    order = np.argsort(-weights)
    at = [np.unravel_index(places[number], shape) for number in order]
    return [
        priors.Atom(round(float(THRESHOLDS[t]), 3), float(WIDTHS[w]), float(CEILINGS[c]), round(float(weight), 3))
        for (t, w, c), weight in zip(at, weights[order], strict=True)
    ]


def _mixture(likelihoods: NDArray[np.float64], n_steps: int) -> NDArray[np.float64]:
    """Weights of the columns, by EM."""
    weights = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
    for _ in range(n_steps):
        joint = np.maximum(likelihoods * weights, 1e-300)
        weights = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
    return weights


def _log_likelihoods(counts: Sequence[SourceCount]) -> NDArray[np.float64]:
    """As the product weighs verdicts, without forgetting: the posterior from a flat start is the likelihood."""
    return update(flat_curve(), counts).log_posterior.astype(np.float64)


def module_text(atoms: Mapping[Kinship, Sequence[priors.Atom]], *, command: str, n_streams: int, day: str) -> str:
    whole = Path(priors.__file__).read_text(encoding="utf-8")
    begin, end = whole.index("Fitted "), whole.index('"""', 3)
    written = (
        f"Fitted {day} by\n\n    {command}\n\nto {n_streams} streams over five domains of CLINC150 and two parts of "
        "BANKING77 (docs/benchmarks/draft-pool.md).\n"
    )
    whole = whole[:begin] + written + whole[end:]
    table = "".join(
        f"        Kinship.{kinship.name}: (\n"
        + "".join(f"            Atom{tuple(a)},\n" for a in each)
        + "        ),\n"
        for kinship, each in atoms.items()
    )
    begin = whole.index("    {\n") + len("    {\n")
    return whole[:begin] + table + whole[whole.index("    }\n") :]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="the folder of the data sets (default $KOLM_DATA)")
    parser.add_argument("--streams", type=int, default=N_STREAMS)
    parser.add_argument("--write", action="store_true", help="write the product's module")
    asked = parser.parse_args()
    try:
        texts = read_texts(asked.data or data_folder())
    except FileNotFoundError as missing:
        print(f"No data, nothing fitted: {missing}", file=sys.stderr)
        return 1
    families = chosen_families(texts)
    worlds = draw_worlds(families, texts.outside, asked.streams, SEED, filter_rates(families, SEED))
    streams = [verdicts_of(world, i) for i, world in enumerate(worlds)]
    atoms = {kinship: fit([counts[kinship] for counts in streams]) for kinship in Kinship}
    for kinship, each in atoms.items():
        n_verdicts = sum(count.n_shown for counts in streams for count in counts[kinship])
        print(f"{kinship}: {n_verdicts} verdicts, {len(each)} atoms", *each, sep="\n  ")
    if asked.write:
        command = f"python -m tests.bench.draft_priors --streams {asked.streams} --write"
        day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        text = module_text(atoms, command=command, n_streams=asked.streams, day=day)
        Path(priors.__file__).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
