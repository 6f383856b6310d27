"""What gated drafts cost at the worst and bring at the best, on our engine and kolm-tiny-1: no drafts beside a pack of
the task, one whose every run is wrong, one of which half are, prompt look-up, and all in a chain.

    OMP_NUM_THREADS=1 python -m tests.bench.recipe_controller --batches 1 8 32 --rounds 3

Each way has an engine of its own, so that the first round shows what learning costs. The rounds of all ways are mixed,
and what is compared is the processor's time of the same round. What other work of the machine does to it all the same
is seen in the second way without drafts.
"""

import argparse
import dataclasses
import hashlib
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.pack import Recipe, RecipePack
from deploy.embedded.home import ROOT
from gpu_runners.engine.sync import generate_all
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.protocol import Drafting, DraftKind, GenerationRequest, PackRef
from gpu_runners.speculation.vocabulary import observed_of, token_texts
from gpu_runners.tiny_base.train import NAME, ensure
from tests.gpu_runners.speculation.tiny_task import prompts

MAX_TOKENS = 40


def requests(base: CausalBase, n: int, seed: int, drafting: Drafting | None) -> list[GenerationRequest]:
    return [
        GenerationRequest(id=str(i), prompt=tuple(prompt), max_new_tokens=MAX_TOKENS, drafting=drafting)
        for i, prompt in enumerate(prompts(base, n, seed=seed))
    ]


def pack_of(base: CausalBase, texts: Sequence[bytes], n: int) -> RecipePack:
    engine = TorchEngine(base)
    try:
        said = generate_all(engine, requests(base, n, 1, None))
    finally:
        engine.stop()
    return build_pack(
        [observed_of(base, answer.text, [answer.text]) for answer in said],
        texts,
        tokenizer_sha256=base.tokenizer_sha256,
        base=base.name,
        options=PackOptions(),
        end_ids=base.eos_ids,
    )


def spoiled(pack: RecipePack, texts: Sequence[bytes], share: float) -> RecipePack:
    """The same places and the same claims; `share` of the runs are words that do not come."""
    rng, words = random.Random(3), [i for i, text in enumerate(texts) if text.isalpha()]

    def spoil(recipe: Recipe) -> Recipe:
        run = tuple(rng.choice(words) for _ in range(12))
        if rng.random() >= share:
            return recipe
        return dataclasses.replace(recipe, run=run, run_text=b"".join(texts[i] for i in run).decode())

    return dataclasses.replace(pack, recipes=tuple(spoil(recipe) for recipe in pack.recipes))


def written(pack: RecipePack, folder: Path) -> PackRef:
    data = pack.to_bytes()
    key = hashlib.sha256(data).hexdigest()
    path = folder / f"{key}.json"
    path.write_bytes(data)
    return PackRef(key=key, path=path)


def ways(base: CausalBase, folder: Path, n_observed: int) -> dict[str, Drafting | None]:
    texts = token_texts(base)
    pack = pack_of(base, texts, n_observed)
    good = written(pack, folder)
    hostile, half = (written(spoiled(pack, texts, share), folder) for share in (1.0, 0.5))
    only = (DraftKind.PACK,)
    chain = (DraftKind.PACK, DraftKind.PROMPT)
    return {
        "no drafts": None,
        "no drafts, again": None,
        "pack": Drafting(kinds=only, pack=good),
        "pack, half of it wrong": Drafting(kinds=only, pack=half),
        "pack, all of it wrong": Drafting(kinds=only, pack=hostile),
        "pack, all of it wrong, not gated": Drafting(kinds=only, pack=hostile, is_gated=False),
        "prompt look-up": Drafting(kinds=(DraftKind.PROMPT,)),
        "pack, prompt look-up": Drafting(kinds=chain, pack=good),
    }


def measured(base: CausalBase, arms: dict[str, Drafting | None], *, batch: int, rounds: int, n: int) -> None:
    engines = {way: TorchEngine(base, max_running=batch) for way in arms}
    took: dict[str, list[float]] = {way: [] for way in arms}
    said: dict[str, list[str]] = {}
    told: dict[str, tuple[int, int, int, int]] = {}
    rng = random.Random(batch)
    for engine in engines.values():
        generate_all(engine, requests(base, 2, 9, None))
    for _ in range(rounds):
        for way in rng.sample(list(arms), len(arms)):
            began = time.process_time()
            answers = generate_all(engines[way], requests(base, n, 2, arms[way]), at_once=batch)
            took[way].append(time.process_time() - began)
            said[way] = [answer.text for answer in answers]
            counts = [answer.counts for answer in answers]
            told[way] = (
                sum(one.completion_tokens for one in counts),
                sum(one.steps for one in counts),
                sum(one.drafted_tokens for one in counts),
                sum(one.accepted_tokens for one in counts),
            )
    for engine in engines.values():
        engine.stop()
    for way, (n_tokens, n_steps, n_drafted, n_accepted) in told.items():
        ratios = [a / b for a, b in zip(took["no drafts"], took[way], strict=True)]
        kept = f"{100 * n_accepted / n_drafted:.1f} %" if n_drafted else "-"
        row = (
            batch,
            way,
            f"{n_tokens / n_steps:.2f}",
            n_drafted,
            kept,
            f"{ratios[0]:.2f}",
            f"{statistics.median(ratios):.2f}",
            "{0:.2f} to {2:.2f}".format(*statistics.quantiles(ratios, n=4)),
        )
        same = sum(a == b for a, b in zip(said[way], said["no drafts"], strict=True))
        print("| " + " | ".join(map(str, row)) + f" | {same}/{n} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--observed", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    base = open_causal_base(NAME, base_dir=ensure(ROOT / "build" / "bases").parent)
    with tempfile.TemporaryDirectory() as folder:
        arms = ways(base, Path(folder), args.observed)
        print("| rows | drafts | tokens a step | drafted | accepted | first round | speed | middle half | same |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for batch in args.batches:
            measured(base, arms, batch=batch, rounds=args.rounds, n=args.requests)


if __name__ == "__main__":
    main()
