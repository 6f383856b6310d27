"""`kolm select`: its options. `gpu_runners.selecting` does the work."""

from collections.abc import Callable
from typing import Any

import click

from gpu_runners.cli.options import PATH, json_option
from gpu_runners.selecting.request import Request
from gpu_runners.selecting.run import select

DESCRIPTION = (
    'Rows are JSON lines: {"id", "text"} or {"id", "embedding": [...]}, with "score" and "label" on all of them or on '
    "none. Kept rows go to standard output as JSON lines, best first; the cohesion log and warnings go to standard "
    "error."
)
METHODS = (
    "auto (default), two_step, top_k, diverse, dpp, facility_location, k_center, representative; baselines: random, all"
)
Act = Callable[..., int]


class _Whole(click.ParamType[int]):
    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = -1
        if number < 0:
            self.fail(f"it is a whole number of 0 or more, not {value!r}", param, ctx)
        return number


class _Number(click.ParamType[float]):
    name = "x"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(value)
        except ValueError:
            self.fail(f"it is a number, not {value!r}", param, ctx)


WHOLE, NUMBER = _Whole(), _Number()


def _method_options(act: Act) -> Act:
    options = (
        click.option("--k", type=WHOLE, metavar="K", help="how many to keep (default: a third, rounded up)"),
        click.option("--method", default="auto", metavar="NAME", help=METHODS),
        click.option(
            "--linkage", default="average", metavar="NAME", help="of two_step: average (default), complete or ward"
        ),
        click.option(
            "--lambda", "diversity_lambda", type=NUMBER, default=1.0, metavar="X",
            help="of diverse, dpp and facility_location: 0 is the K best scores, inf is spread alone (default: 1)",
        ),
        click.option(
            "--penalty", default="nearest", metavar="NAME",
            help="of diverse: nearest (default), or sum as seed 000 has it",
        ),
        click.option(
            "--min-distance", type=NUMBER, default=0.0, metavar="D",
            help="refuse a pick closer than this (cosine, 0 to 2)",
        ),
        click.option(
            "--score-floor", type=NUMBER, metavar="SHARE",
            help="drop this share of the worst scores first (default: 1/3 for two_step and k_center)",
        ),
        click.option(
            "--overcluster", type=NUMBER, default=1.0, metavar="X",
            help="of two_step: clusters per pick, 1 (default) to 4",
        ),
        click.option("--seed", type=WHOLE, default=0, metavar="N", help="of random"),
        click.option(
            "--traffic", "is_traffic", is_flag=True, help="the rows are what people sent: auto represents them"
        ),
        click.option("--no-stratify", is_flag=True, help="do not share K out over the labels"),
        click.option("--drop-k", is_flag=True, help="keep no more rows than there are groups of near-duplicates"),
    )  # fmt: skip
    for add in reversed(options):
        act = add(act)
    return act


@click.command("select", epilog=DESCRIPTION)
@click.argument("file", type=PATH, metavar="FILE", help="JSON lines; - is standard input")
@_method_options
@click.option("--text-lines", is_flag=True, help="each line of FILE is a text, its number the id")
@click.option(
    "--embeddings", metavar="FILE.npy", help="embeddings of the rows, line by line; rows then need an id only"
)
@click.option("--out", type=PATH, metavar="FILE", help="where the kept rows go (default: standard output)")
@click.option("--dropped", type=PATH, metavar="FILE", help="write the dropped rows too, each with why")
@click.option("--report", type=PATH, metavar="FILE", help="write the selection's report as JSON")
@click.option("--map", type=PATH, metavar="FILE", help="draw kept and dropped rows, as SVG")
@click.option(
    "--explain",
    multiple=True,
    metavar="ID",
    help="say why this row was kept or dropped instead of printing rows (may be repeated)",
)
@json_option("print one object with the picks, the report and the explanations")
def select_rows(*, no_stratify: bool, explain: tuple[str, ...], **fields: Any) -> int:
    return select(Request(**fields, explain=list(explain), stratify=not no_stratify))
