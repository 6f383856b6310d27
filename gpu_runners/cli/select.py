"""`kolm select`: its options. `gpu_runners.selecting` does the work."""

import argparse

from gpu_runners.cli.options import AddOptions
from gpu_runners.selecting.request import Request
from gpu_runners.selecting.run import select

DESCRIPTION = (
    'Rows are JSON lines: {"id", "text"} or {"id", "embedding": [...]}, with "score" and "label" on all of them or on '
    "none. Kept rows go to standard output as JSON lines, best first; the cohesion log and warnings go to standard "
    "error."
)


def _select_options(select: argparse.ArgumentParser) -> None:
    select.description = DESCRIPTION
    select.add_argument("file", metavar="FILE", help="JSON lines; - is standard input")
    _method_options(select)
    _output_options(select)
    select.set_defaults(command=_run_select)


def _method_options(select: argparse.ArgumentParser) -> None:
    select.add_argument("--k", type=_whole, metavar="K", help="how many to keep (default: a third, rounded up)")
    select.add_argument(
        "--method",
        default="auto",
        metavar="NAME",
        help="auto (default), two_step, top_k, diverse, dpp, facility_location, k_center, representative; baselines: "
        "random, all",
    )
    select.add_argument(
        "--linkage", default="average", metavar="NAME", help="of two_step: average (default), complete or ward"
    )
    select.add_argument(
        "--lambda",
        dest="diversity_lambda",
        type=_number,
        default=1.0,
        metavar="X",
        help="of diverse, dpp and facility_location: 0 is the K best scores, inf is spread alone (default: 1)",
    )
    select.add_argument(
        "--penalty", default="nearest", metavar="NAME", help="of diverse: nearest (default), or sum as seed 000 has it"
    )
    select.add_argument(
        "--min-distance", type=_number, default=0.0, metavar="D", help="refuse a pick closer than this (cosine, 0 to 2)"
    )
    select.add_argument(
        "--score-floor",
        type=_number,
        metavar="SHARE",
        help="drop this share of the worst scores first (default: 1/3 for two_step and k_center)",
    )
    select.add_argument(
        "--overcluster", type=_number, default=1.0, metavar="X", help="of two_step: clusters per pick, 1 (default) to 4"
    )
    select.add_argument("--seed", type=_whole, default=0, metavar="N", help="of random")
    select.add_argument(
        "--traffic", dest="is_traffic", action="store_true", help="the rows are what people sent: auto represents them"
    )
    select.add_argument("--no-stratify", action="store_true", help="do not share K out over the labels")
    select.add_argument(
        "--drop-k", action="store_true", help="keep no more rows than there are groups of near-duplicates"
    )


def _output_options(select: argparse.ArgumentParser) -> None:
    select.add_argument("--text-lines", action="store_true", help="each line of FILE is a text, its number the id")
    select.add_argument(
        "--embeddings", metavar="FILE.npy", help="embeddings of the rows, line by line; rows then need an id only"
    )
    select.add_argument("--out", metavar="FILE", help="where the kept rows go (default: standard output)")
    select.add_argument("--dropped", metavar="FILE", help="write the dropped rows too, each with why")
    select.add_argument("--report", metavar="FILE", help="write the selection's report as JSON")
    select.add_argument("--map", metavar="FILE", help="draw kept and dropped rows, as SVG")
    select.add_argument(
        "--explain",
        action="append",
        default=[],
        metavar="ID",
        help="say why this row was kept or dropped instead of printing rows (may be repeated)",
    )
    select.add_argument(
        "--json", action="store_true", help="print one object with the picks, the report and the explanations"
    )


def _whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"it is a whole number of 0 or more, not {text!r}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"it is a number, not {text!r}") from None


def _run_select(options: argparse.Namespace) -> int:
    fields = {name: value for name, value in vars(options).items() if name not in ("command", "no_stratify", "json")}
    return select(Request(**fields, stratify=not options.no_stratify, as_json=options.json))


OPTIONS: dict[str, AddOptions] = {
    "select": _select_options,
}
