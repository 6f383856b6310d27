"""What an epoch of the registry saves a task that it knows nothing of.

    python -m tests.bench.registry_cold_start [DATA] [--out FILE]

DATA has `humaneval/` and `snips/` in it (default $KOLM_DATA, else ../shared/data). Tenants are made of it: each of the
seven intents of SNIPS is three tenants with a third of its training answers each, as JSON; of HumanEval every twelve
problems are a tenant with 40 samples of each. One task after the other is taken away (all three tenants of the intent,
or one tenant of HumanEval), the others contribute what their answers have of structure, an epoch is released, and the
answers of the task that was taken away are walked as greedy verification would
(`backend.domain.recipes.mining.conditional_runs`). Packs draft up to 16 tokens. Tokens: a byte-level BPE of 8,192
trained on all answers. No database: the counting is that of `backend.domain.recipes.registry.anonymity` over tenants
that share nobody.
"""

import argparse
import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.observing import observe
from backend.domain.recipes.pack import Recipe, RecipePack
from backend.domain.recipes.registry.anonymity import Counted, choose_released
from backend.domain.recipes.registry.cold_start import epoch_recipes
from backend.domain.recipes.registry.contributed import structures_of
from backend.domain.recipes.registry.epochs import Entry, Epoch, build_epoch, read_epoch
from backend.domain.recipes.shapes import SHAPE_VERSION
from tests.bench.recipe_replay_data import END, Encoder
from tests.bench.snips_data import read_snips
from tests.greedy_replay import Replayed, replay

K, MARGIN, FEW, MANY, N_MEASURED = 10, 6, 10, 100, 100
PROBLEMS, SAMPLES = 12, 40
KEY = Ed25519PrivateKey.from_private_bytes(b"registry cold start, bench only."[:32])


@dataclass(frozen=True, kw_only=True)
class Tenant:
    task: str
    kind: str
    answers: list[str]


@dataclass(frozen=True, kw_only=True)
class Row:
    kind: str
    arm: str
    counts: Replayed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("KOLM_DATA") or "../shared/data", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    tenants = [*_snips(options.data), *_humaneval(options.data)]
    encoder = Encoder.trained_on([("", answer) for tenant in tenants for answer in tenant.answers])
    given = {id(tenant): _given(tenant) for tenant in tenants}
    rows, sizes = [], Counter[tuple[str, str]]()
    tasks = list(dict.fromkeys((tenant.kind, tenant.task) for tenant in tenants))
    for kind, task in tasks:
        others = [given[id(tenant)] for tenant in tenants if tenant.task != task]
        answers = [answer for tenant in tenants if tenant.task == task for answer in tenant.answers]
        epochs = {margin: _epoch(others, margin) for margin in (0, MARGIN)}
        for margin, epoch in epochs.items():
            sizes[kind, f"{margin}"] += len(epoch.entries)
        rows += [Row(kind=kind, arm=arm, counts=n) for arm, n in _arms(answers, epochs, encoder).items()]
    text = _page(rows, {place: n / sum(kind == place[0] for kind, _ in tasks) for place, n in sizes.items()}, tenants)
    print(text) if options.out is None else options.out.write_text(text, "utf-8")
    return 0


def _snips(data: Path) -> list[Tenant]:
    by_intent: dict[str, list[str]] = {}
    for row in read_snips(data).train:
        by_intent.setdefault(row.answer["intent"], []).append(json.dumps(row.answer, ensure_ascii=False))
    return [
        Tenant(task=intent, kind="JSON (SNIPS)", answers=answers[part::3][: 3 * MANY])
        for intent, answers in by_intent.items()
        for part in range(3)
    ]


def _humaneval(data: Path) -> list[Tenant]:
    path = data / "humaneval" / "codegen16B_temp0.8_100_samples.jsonl"
    problems = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
    return [
        Tenant(
            task=f"problems {first}",
            kind="code (HumanEval)",
            answers=[text for row in problems[first : first + PROBLEMS] for text in row["samples"][:SAMPLES]],
        )
        for first in range(0, len(problems) - PROBLEMS + 1, PROBLEMS)
    ]


def _pack(answers: Sequence[str], encoder: Encoder, kept: Sequence[Recipe] = ()) -> RecipePack:
    tokens = [[*encoder.ids(answer), END] for answer in answers]
    observed = [observe(one, [one, one, one]) for one in tokens]
    return build_pack(
        observed,
        encoder.token_texts,
        tokenizer_sha256="0" * 64,
        base="",
        options=PackOptions(),
        kept=kept,
        end_ids=(END,),
    )


def _given(tenant: Tenant) -> set[Entry]:
    return {Entry(shape=one.shape, run=one.run) for one in structures_of(tenant.answers)}


def _epoch(given: Sequence[set[Entry]], margin: int) -> Epoch:
    counts = Counter(entry for entries in given for entry in entries)
    rows = [Counted(entry=entry, n_parties=n) for entry, n in counts.items() if n >= K]
    entries = choose_released(rows, k=K, margin=margin, draw=lambda text: hashlib.sha256(text.encode()).digest())
    made = {"number": 1, "prev": "", "k": K, "created_at": "2026-11-22T00:00:00Z", "key": KEY}
    return read_epoch(build_epoch(entries, shape_version=SHAPE_VERSION, **made))


def _arms(answers: Sequence[str], epochs: dict[int, Epoch], encoder: Encoder) -> dict[str, Replayed]:
    """The task's last answers are measured; its own samples are its first ones."""
    measured = [[*encoder.ids(answer), END] for answer in answers[-N_MEASURED:]]
    bare, secret = (epoch_recipes(epochs[margin], encoder.ids, encoder.token_texts) for margin in (0, MARGIN))
    few, many = answers[:FEW], answers[: min(MANY, len(answers) - N_MEASURED)]
    packs = {
        f"epoch, k = {K}": _pack([], encoder, bare),
        f"epoch, k = {K} and the margin": _pack([], encoder, secret),
        f"own pack of {FEW} answers": _pack(few, encoder),
        f"own pack of {FEW} answers, begun with the epoch (k = {K})": _pack(few, encoder, bare),
        f"own pack of {MANY} answers": _pack(many, encoder),
        f"own pack of {MANY} answers, begun with the epoch (k = {K})": _pack(many, encoder, bare),
    }
    found = {}
    for arm, pack in packs.items():
        index = PackIndex(pack, encoder.token_texts)
        found[arm] = replay(measured, lambda _, index=index: index.cursor(), max_draft=16)
    return found


def _page(rows: Sequence[Row], sizes: dict[tuple[str, str], float], tenants: Sequence[Tenant]) -> str:
    lines = [
        "# What an epoch of the registry saves",
        "",
        "Written by `python -m tests.bench.registry_cold_start --out docs/benchmarks/registry.md`; how: its docstring.",
    ]
    for kind in dict.fromkeys(row.kind for row in rows):
        n = sum(tenant.kind == kind for tenant in tenants)
        bare, secret = sizes[kind, "0"], sizes[kind, f"{MARGIN}"]
        lines += ["", f"## {kind}", ""]
        lines += [f"{len(tenants)} tenants, {n} of them of this kind; a task whose tenants are left out begins with an"]
        lines += [f"epoch of {bare:.0f} entries on average ({secret:.0f} with the secret margin).", ""]
        lines += [
            "| drafts from | tokens per step | drafted tokens accepted | steps with a draft |",
            "|---|---|---|---|",
        ]
        lines += ["| nothing | 1.00 | | |"]
        for arm in dict.fromkeys(row.arm for row in rows if row.kind == kind):
            of_arm = [row.counts for row in rows if (row.kind, row.arm) == (kind, arm)]
            total = {name: sum(getattr(c, name) for c in of_arm) for name in Replayed.__slots__}
            accepted = f"{total['n_accepted'] / total['n_drafted']:.1%}" if total["n_drafted"] else ""
            per_step = f"{total['n_tokens'] / total['n_steps']:.2f}"
            lines.append(f"| {arm} | {per_step} | {accepted} | {total['n_drafts'] / total['n_steps']:.1%} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    raise SystemExit(main())
