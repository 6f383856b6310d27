"""`python -m tests.bench.rules_surest [DATA]`: how right SNIPS as JSON would be answered where its rules are surest.

The list that is held to 80 % answers its own held-out pairs; the answers are ordered by the product of the lower bounds
of the rules that gave their fields, or by the least of them. Those bounds were counted on the same pairs, so what is
told here is more than a list cut so would keep: where it falls short of 95 %, no such cut reaches it.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from backend.domain.answers.json_values import is_exact, parse_answer
from backend.domain.rules.certifying import low_ppm
from backend.domain.rules.closure import compile_rules
from backend.domain.rules.extraction import compile_trace
from backend.domain.rules.induction import RuleOptions, induce_rules
from backend.domain.rules.splitting import halves
from tests.bench.banking77_data import data_folder
from tests.bench.rules_data import Pairs, Task, snips_json

SHARES = (0.05, 0.1, 0.15, 0.2, 0.3)
OPTIONS = RuleOptions(precision=0.8)
Answer = tuple[float, float, str, bool]  # product and least of the bounds, intent, whether it is right


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rules_surest", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    try:
        task = snips_json(parser.parse_args(arguments).data)
    except FileNotFoundError as missing:
        print(f"There is no {missing.filename}: give the folder with the data sets, or set KOLM_DATA.")
        return 1
    pairs = heldout(task)
    answers = answered(task, pairs)
    print("| of the held-out pairs | surest by | answers | right | lower bound |\n|---|---|---|---|---|")
    for column, order in enumerate(("product of bounds", "least bound")):
        for share in SHARES:
            chosen = sorted(answers, key=lambda one: -float(one[column]))[: int(share * len(pairs))]
            print(f"| {100 * share:.0f} % | {order} | {_right(chosen)} |")
    for intent in sorted({one[2] for one in answers}):
        print(f"| {intent} | - | {_right([one for one in answers if one[2] == intent])} |")
    return 0


def heldout(task: Task) -> Pairs:
    pairs = sorted(set(task.train))
    _, judging = halves([text for text, _ in pairs], heldout_share=OPTIONS.heldout_share, seed=OPTIONS.seed)
    return tuple(pairs[at] for at in judging)


def answered(task: Task, pairs: Pairs) -> list[Answer]:
    rules = induce_rules(task.train, task.answer, OPTIONS).rules
    answer, trace = compile_rules(rules), compile_trace(rules)
    bounds = [rule.evidence.low_ppm / 1e6 for rule in rules.rules]
    made = []
    for text, gold in pairs:
        if (said := answer(text)) is not None:
            own = [bounds[number] for number, _ in trace(text)]
            value = parse_answer(said)
            made.append((math.prod(own), min(own), str(value["intent"]), is_exact(value, parse_answer(gold))))
    return made


def _right(answers: Sequence[Answer]) -> str:
    n, right = len(answers), sum(one[3] for one in answers)
    return f"{n:,} | {100 * right / n:.1f} % | {low_ppm(right, n, 0.05) / 1e4:.1f} %" if n else "0 | - | -"


if __name__ == "__main__":
    sys.exit(main())
