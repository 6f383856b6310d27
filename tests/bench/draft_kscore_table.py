"""The tables of the paired experiment."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, stdev

from tests.bench.draft_kscore_pairs import (
    BASE,
    WARM,
    Measured,
    Paired,
    Value,
    differences_of,
    equal_speed,
    paired,
    seeds_of,
)


def report(rows: Sequence[Measured]) -> str:
    """All tables, as Markdown."""
    arms = [arm for arm in WARM if len(seeds_of(rows, arm)) > 1]
    values: dict[str, Value] = {
        "K-score": lambda row: row.k_score_ppm / 1e6,
        "K-score at equal speed": equal_speed(rows),
        "held-out accuracy": lambda row: row.accuracy,
    }
    found = {(name, arm): paired(differences_of(rows, arm, value)) for name, value in values.items() for arm in arms}
    return "\n\n".join(
        [
            _levels(rows, values),
            _table(_DIFFERENCES, [_difference_cells(name, arm, found[name, arm]) for name in values for arm in arms]),
            _table(_DRAFTS, [_draft_cells(arm, [r for r in rows if r.arm == arm]) for arm in arms]),
            _table(_COSTS, [_cost_cells(arm, rows) for arm in arms]),
            _table(("seed", *_each_header(arms)), _seed_rows(rows, arms, values["K-score at equal speed"])),
        ]
    )


def _levels(rows: Sequence[Measured], values: Mapping[str, Value]) -> str:
    """Mean and standard deviation over seeds of each arm."""
    lines = []
    for arm in (*COLDS, *WARM):
        of = [row for row in rows if row.arm == arm]
        if len(of) > 1:
            found = {name: [value(row) for row in of] for name, value in values.items()}
            lines.append((arm, str(len(of)), *(f"{mean(v):.4f} ± {stdev(v):.4f}" for v in found.values())))
    return _table(("mean ± sd", "compiles", *values), lines)


_DIFFERENCES = (
    "warm - cold",
    "drafts by",
    "seeds",
    "mean",
    "95 % (paired t)",
    "95 % (bootstrap)",
    "higher / lower / same",
    "sign test p",
    "sd of a pair",
    "detectable",
    "below beyond noise",
)


def _difference_cells(name: str, arm: str, p: Paired) -> tuple[str, ...]:
    return (
        name,
        arm,
        str(p.n),
        f"{p.mean:+.4f}",
        f"{p.low:+.4f} to {p.high:+.4f}",
        f"{p.boot_low:+.4f} to {p.boot_high:+.4f}",
        f"{p.wins} / {p.losses} / {p.n - p.wins - p.losses}",
        f"{p.sign_p:.3f}",
        f"{p.sd:.4f}",
        f"{p.detectable:.4f}",
        "yes" if p.is_below_noise else "no",
    )


_DRAFTS = ("drafts by", "compiles", "offered", "accepted", "share of the pool", "share of the trained", "certificates")


def _draft_cells(arm: str, rows: Sequence[Measured]) -> tuple[str, ...]:
    by: dict[str, int] = {}
    for row in rows:
        for certificate, n in row.from_drafts.items():
            by[certificate] = by.get(certificate, 0) + n
    offered, accepted = sum(row.n_offered for row in rows), sum(row.n_accepted for row in rows)
    trained = sum(sum(row.trained_from_drafts.values()) for row in rows)
    return (
        arm,
        str(len(rows)),
        str(offered),
        f"{accepted} ({accepted / offered:.1%})" if offered else "0",
        f"{sum(by.values()) / sum(row.n_pool for row in rows):.1%}",
        f"{trained / sum(row.n_trained for row in rows):.1%}",
        ", ".join(f"{name} {n}" for name, n in sorted(by.items())) or "none",
    )


_COSTS = (
    "drafts by",
    "synthesis, cold",
    "synthesis, warm",
    "labels, cold",
    "labels, warm",
    "avoided",
    "verification",
    "other",
    "net",
    "compiles with net < 0",
)


def _cost_cells(arm: str, rows: Sequence[Measured]) -> tuple[str, ...]:
    """Means over the seeds that have both, micro-USD."""
    seeds = set(seeds_of(rows, arm))
    warm = [row for row in rows if row.arm == arm and row.seed in seeds]
    cold = [row for row in rows if row.arm == BASE[arm] and row.seed in seeds]
    part = {name: mean(row.saving[f"{name}_microusd"] for row in warm) for name in _ACCOUNT}
    other = part["embedding"] + part["audit"] + part["exploration"]
    costs = [mean(getattr(row, f"{step}_microusd") for row in of) for step in _STEPS for of in (cold, warm)]
    figures = [*costs, part["avoided"], part["verification"], other, part["net"]]
    n_lost = sum(row.saving["net_microusd"] < 0 for row in warm)
    return (arm, *(f"{figure:,.0f}" for figure in figures), f"{n_lost} of {len(warm)}")


_STEPS = ("synthesis", "labeling")
_ACCOUNT = ("avoided", "verification", "embedding", "audit", "exploration", "net")


COLDS = tuple(dict.fromkeys(BASE.values()))


def with_bases(arms: Sequence[str]) -> list[str]:
    """The arms, and before them the cold ones that they are compared with."""
    return [*dict.fromkeys(BASE[arm] for arm in arms), *arms]


def _each_header(arms: Sequence[str]) -> list[str]:
    return [f"{what}, {arm}" for what in ("K", "accuracy") for arm in with_bases(arms)]


def _seed_rows(rows: Sequence[Measured], arms: Sequence[str], k: Value) -> list[tuple[str, ...]]:
    of = {(row.arm, row.seed): row for row in rows}
    values: tuple[Value, ...] = (k, lambda row: row.accuracy)
    return [
        (
            str(seed),
            *(
                f"{value(of[arm, seed]):.3f}" if (arm, seed) in of else ""
                for value in values
                for arm in with_bases(arms)
            ),
        )
        for seed in sorted({row.seed for row in rows})
    ]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
