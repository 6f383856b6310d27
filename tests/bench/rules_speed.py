"""`python -m tests.bench.rules_speed [DATA]`: what a rule list's answer costs, in Python and in JavaScript (node).

The lists are those that `rules_quality` induces (SNIPS as JSON held to 80 %, because at 95 % it has no list), made-up
orders as JSON, and made-up lists of 10 to 5,000 rules over BANKING77's texts: two words of a training text at a time,
so that most of them are never met. Each list answers the task's own test texts.

Python is the closure alone; `kolm run` what stands between a text and its answer object there, one text at a time
and all as lines of a file, without the model; JavaScript the module that `kolm rules --javascript` writes, imported.
Beside the closure: a loop over the rules with the same conditions, and one compiled alternative of `re` per label list
(words alone), the two ways one would write it first.

p50 and p99 are over texts; of a text the shortest of three turns of 50 calls, because the machine may be busy. Calls a
second are of CPU time over all texts, the best of three passes: one text after the other, as no p50 has it.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from backend.domain.rules.closure import compile_batch, compile_rules
from backend.domain.rules.conditions import View, all_of, pad, test_of
from backend.domain.rules.induction import RuleOptions, induce_rules
from backend.domain.rules.javascript.export import to_javascript
from backend.domain.rules.rule_list import Evidence, LabelRule, RuleList
from backend.domain.rules.wording import word_bytes, words_of
from gpu_runners.artifacts.rules_first import RulesFirst, predict_with_rules
from tests.backend.domain.rules.javascript.node_answers import node
from tests.backend.domain.rules.worlds import SCHEMA, orders
from tests.bench.banking77_data import data_folder
from tests.bench.rules_data import Task, banking77, tasks

TURNS, CALLS = 3, 50
N_TEXTS = 400  # of a test set, evenly drawn
MADE_UP = (10, 100, 1_000, 5_000)
MAX_ALTERNATIVES = 300  # a pattern of more takes milliseconds a text
JSON_PRECISION = 0.8
HEAD = (
    "| list | rules | texts | answered | way | ready in ms | p50 us | p99 us | calls/s |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
_NODE = """
import { readFileSync } from "node:fs";
const began = process.cpuUsage();
const { answer } = await import(process.argv[2]);
const importing = process.cpuUsage(began), readyMs = (importing.user + importing.system) / 1000;
const texts = JSON.parse(readFileSync(0, "utf8"));
let sum = 0;
const ask = (text) => { const said = answer(text); if (said !== null) sum += said.charCodeAt(said.length - 1); };
const pass = () => { for (const text of texts) ask(text); };
const repeats = Math.ceil(200_000 / texts.length);
for (let i = 0; i < repeats; i++) pass();
let best = Infinity;
for (let turn = 0; turn < TURNS; turn++) {
  const before = process.cpuUsage();
  for (let i = 0; i < repeats; i++) pass();
  const used = process.cpuUsage(before);
  best = Math.min(best, (used.user + used.system) / (repeats * texts.length));
}
const each = texts.map((text) => {
  let shortest = Infinity;
  for (let turn = 0; turn < TURNS; turn++) {
    const started = process.hrtime.bigint();
    for (let i = 0; i < CALLS; i++) ask(text);
    shortest = Math.min(shortest, Number(process.hrtime.bigint() - started) / 1000 / CALLS);
  }
  return shortest;
});
process.stdout.write(JSON.stringify({ us: best, each, sum, readyMs }));
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """`each_us`: of every text, none where texts only come together; `us`: a call's mean; `ready_ms`: CPU time
    from rules.json, read, or the module to what can be asked."""

    each_us: tuple[float, ...]
    us: float
    ready_ms: float | None = None

    def cells(self) -> str:
        p50, p99 = (f"{np.percentile(self.each_us, q):.2f}" if self.each_us else "-" for q in (50, 99))
        ready = "-" if self.ready_ms is None else f"{self.ready_ms:.0f}"
        return f"{ready} | {p50} | {p99} | {1e6 / self.us:,.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rules_speed", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--only", default="", help="a part of a list's name")
    chosen = parser.parse_args(arguments)
    try:
        found = tasks(chosen.data, chosen.only)
        made_up = banking77(chosen.data)
    except FileNotFoundError as missing:
        print(f"There is no {missing.filename}: give the folder with the data sets, or set KOLM_DATA.")
        return 1
    print(f"load {'/'.join(f'{value:.1f}' for value in os.getloadavg())}\n\n{HEAD}", flush=True)
    for task in [*found, *([made_up_orders()] if chosen.only in "orders" else [])]:
        _report(task.name, induced(task), task.texts)
    for n_rules in MADE_UP if chosen.only in "made up" else ():
        _report("made up", made_up_list(made_up, n_rules), made_up.texts)
    return 0


def made_up_orders() -> Task:
    """Sentences of a small grammar, and what is ordered as JSON."""
    test = tuple(orders(N_TEXTS, seed=9))
    answer = {"type": "json", "schema": SCHEMA}
    return Task(name="made-up orders as JSON", train=tuple(orders(1_200)), tests={"test": test}, answer=answer)


def induced(task: Task) -> RuleList:
    options = RuleOptions(precision=JSON_PRECISION) if task.name == "SNIPS as JSON" else RuleOptions()
    return induce_rules(task.train, task.answer, options).rules


def made_up_list(task: Task, n_rules: int) -> RuleList:
    """Two words of a training text and its label, all different."""
    rng, rules = random.Random(7), {}
    while len(rules) < n_rules:
        text, label = rng.choice(task.train)
        when = tuple(sorted(rng.sample(words, 2))) if len(words := sorted(set(words_of(text)))) > 1 else ()
        if when:
            rules[when] = LabelRule(when=when, unless=(), answer=label, evidence=Evidence())
    return RuleList(task="label", rules=tuple(rules.values()))


def _report(name: str, rules: RuleList, texts: list[str]) -> None:
    began = time.process_time()
    answer = compile_rules(rules)
    ready_ms, batch = 1_000 * (time.process_time() - began), compile_batch(rules)
    texts = texts[:: max(1, len(texts) // N_TEXTS)][:N_TEXTS]
    share = sum(answer(text) is not None for text in texts) / len(texts)
    run = as_run(rules)
    ways = {
        "Python": replace(measured(answer, texts), ready_ms=ready_ms),
        "Python, all texts at once": measured_batch(batch, texts),
        "`kolm run`, a text": measured(lambda text: run([text]), texts),
        "`kolm run`, lines of a file": measured_batch(run, texts),
    }
    if rules.task == "label" and rules.n:
        ways |= {"Python, loop over the rules": measured(naive(rules), texts, calls=3)}
        if rules.n <= MAX_ALTERNATIVES:
            ways |= {"Python, one `re` alternative": measured(alternative(rules), texts[::8], calls=1)}
    ways["JavaScript"] = in_node(rules, texts)
    for way, speed in ways.items():
        print(f"| {name} | {rules.n} | {len(texts):,} | {100 * share:.0f} % | {way} | {speed.cells()} |", flush=True)


def as_run(rules: RuleList) -> Callable[[Sequence[str]], list[dict[str, object]]]:
    """What `kolm run` does with texts but for verifying the artifact and asking its model, which answers {} here."""
    first, is_label = RulesFirst(rules, labels=None), rules.task == "label"

    def run(texts: Sequence[str]) -> list[dict[str, object]]:
        return predict_with_rules(first, texts, is_label=is_label, model=lambda left: [{}] * len(left))

    return run


def measured(answer: Callable[[str], object], texts: Sequence[str], *, calls: int = CALLS) -> Speed:
    each = []
    for text in texts:
        shortest = float("inf")
        for _ in range(TURNS):
            started = time.perf_counter_ns()
            for _ in range(calls):
                answer(text)
            shortest = min(shortest, (time.perf_counter_ns() - started) / 1_000 / calls)
        each.append(shortest)

    def one_pass() -> None:
        for text in texts:
            answer(text)

    return Speed(each_us=tuple(each), us=_best_us(one_pass, len(texts)))


def measured_batch(batch: Callable[[Sequence[str]], object], texts: Sequence[str]) -> Speed:
    return Speed(each_us=(), us=_best_us(lambda: batch(texts), len(texts)))


def _best_us(one_pass: Callable[[], object], n_texts: int) -> float:
    best = float("inf")
    for _ in range(TURNS):
        started = time.process_time()
        one_pass()
        best = min(best, time.process_time() - started)
    return best * 1e6 / n_texts


def naive(rules: RuleList) -> Callable[[str], str | None]:
    known = [rule for rule in rules.rules if isinstance(rule, LabelRule)]
    tests = [(all_of(map(test_of, rule.when), map(test_of, rule.unless)), rule.answer) for rule in known]

    def answer(text: str) -> str | None:
        view = View(text, pad(word_bytes(text)))
        return next((said for applies, said in tests if applies(view)), None)

    return answer


def alternative(rules: RuleList) -> Callable[[str], str | None]:
    """Look-aheads for each condition, in the rules' order; `^`, `$` and `#` as one writes them in a pattern."""
    known = [rule for rule in rules.rules if isinstance(rule, LabelRule)]

    def ahead(condition: str) -> str:
        parts = [{"^": r"\A", "$": r"\Z", "#": "[0-9]+"}.get(word, re.escape(word)) for word in condition.split()]
        return f"(?=.*?(?<![^ ]){' '.join(parts)}(?![^ ]))".replace(r"\A ", r"\A").replace(r" \Z", r"\Z")

    usable = [rule for rule in known if not any(c.startswith("<") for c in rule.when)]
    pattern = re.compile("|".join(f"({''.join(map(ahead, rule.when))})" for rule in usable))

    def answer(text: str) -> str | None:
        found = pattern.match(" ".join(words_of(text)))
        return usable[found.lastindex - 1].answer if found is not None and found.lastindex else None

    return answer


def in_node(rules: RuleList, texts: Sequence[str]) -> Speed:
    with tempfile.TemporaryDirectory() as folder:
        module, script = Path(folder) / "rules.mjs", Path(folder) / "bench.mjs"
        module.write_text(to_javascript(rules), "utf-8")
        script.write_text(_NODE.replace("TURNS", str(TURNS)).replace("CALLS", str(CALLS)), "utf-8")
        command = [node(), str(script), module.as_uri()]
        done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    return Speed(each_us=tuple(said["each"]), us=said["us"], ready_ms=said["readyMs"])


if __name__ == "__main__":
    sys.exit(main())
