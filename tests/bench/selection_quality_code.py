"""What selection keeps of 100 real programs a problem: HumanEval (Chen et al. 2021, MIT) with the CodeGen-16B samples
of CodeT (Chen et al. 2022, MIT), unit tests as the verifier.

    python -m tests.bench.selection_quality_code [DATA] [--problems N] [--scores NAME ...]

Scores of a program: its unit tests (the perfect verifier), the first assertion of them alone (a weak one, with many
ties), or none. Reported are, over the problems that some but not all samples solve: the share of the K picks that pass
all tests, how many different correct programs are among them, and how many problems have a correct pick at all.
Verdicts and embeddings are kept below the temporary folder and not computed twice.
"""

import argparse
import ast
import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backend.domain.selection.linkage.clustering import n_near_duplicate_groups
from backend.domain.selection.select import select
from tests.bench.banking77_data import data_folder
from tests.bench.selection_quality_sandbox import Verdict, isolation, run_programs
from tests.bench.selection_quality_texts import CACHE, TextRows

PROBLEMS, SAMPLES = "HumanEval.jsonl.gz", "codegen16B_temp0.8_100_samples.jsonl"
KS = (10, 33)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One task, its samples cut to the function's body, and its two checks."""

    task_id: str
    prompt: str
    samples: tuple[str, ...]
    visible: str
    full: str


def read_problems(folder: Path) -> list[Problem]:
    """In the order of the samples: by name as text, HumanEval/10 after HumanEval/1. Raises FileNotFoundError where the
    two files are not below `folder`."""
    with gzip.open(folder / "humaneval" / PROBLEMS, "rt", encoding="utf-8") as file:
        tasks = sorted((json.loads(line) for line in file), key=lambda task: task["task_id"])
    with (folder / "humaneval" / SAMPLES).open(encoding="utf-8") as file:
        samples = [json.loads(line) for line in file]
    found = []
    for task, row in zip(tasks, samples, strict=True):
        if f"def {task['entry_point']}(" not in row["prompt"]:
            raise ValueError(f"{SAMPLES} does not follow {PROBLEMS} at {task['task_id']}")
        call = f"\ncheck({task['entry_point']})\n"
        found.append(
            Problem(
                task_id=task["task_id"],
                prompt=task["prompt"],
                samples=tuple(body_of(sample) for sample in row["samples"]),
                visible=first_assertion(task["test"]) + call,
                full=task["test"] + call,
            )
        )
    return found


def body_of(completion: str) -> str:
    """The completion up to the first line that is not indented.

    >>> body_of("    return 1\\n\\n\\nassert f() == 1")
    '    return 1'
    """
    lines: list[str] = []
    for line in completion.split("\n"):
        if line.strip() and not line[0].isspace():
            break
        lines.append(line.rstrip())
    return "\n".join(lines).strip("\n")


def first_assertion(test: str) -> str:
    """The test with its `check` cut after the first statement that holds an assertion."""
    tree = ast.parse(test)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            at = next(i for i, part in enumerate(node.body) if any(isinstance(x, ast.Assert) for x in ast.walk(part)))
            node.body = node.body[: at + 1]
    return ast.unparse(tree)


def verdicts_of(problem: Problem) -> list[Verdict]:
    """Of each sample, from the cache where it was run before; equal programs run once."""
    path = CACHE / "humaneval" / f"{problem.task_id.replace('/', '-')}.json"
    if path.exists():
        known = json.loads(path.read_text())
    else:
        programs = sorted(set(problem.samples))
        found = run_programs([problem.prompt + body for body in programs], visible=problem.visible, full=problem.full)
        known = {body: [v.visible, v.full] for body, v in zip(programs, found, strict=True)}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(known))
    return [Verdict(visible=known[body][0], full=known[body][1]) for body in problem.samples]


METHODS: Mapping[str, Mapping[str, object]] = {
    "random": {"method": "random"},
    "top_k": {"method": "top_k"},
    "two_step, no floor": {"method": "two_step", "score_floor": 0.0},
    "two_step": {"method": "two_step", "score_floor": 1 / 3},
    "diverse 0.3": {"method": "diverse", "diversity_lambda": 0.3, "score_floor": 0.0},
    "diverse 1": {"method": "diverse", "diversity_lambda": 1.0, "score_floor": 0.0},
    "diverse 1, floor": {"method": "diverse", "diversity_lambda": 1.0, "score_floor": 1 / 3},
    "dpp": {"method": "dpp", "diversity_lambda": 1.0, "score_floor": 0.0},
    "dpp, floor": {"method": "dpp", "diversity_lambda": 1.0, "score_floor": 1 / 3},
    "k_center": {"method": "k_center", "score_floor": 0.0},
    "auto": {"method": "auto"},
}
SCORES = ("unit tests", "first assertion", "none")
RANDOM_DRAWS = 5


def _kept(rows: np.ndarray, scores: np.ndarray, k: int, name: str) -> list[tuple[int, ...]]:
    """Picks, of several draws for `random`. Ties go by the digest of the embedding, not by how a program begins."""
    draws = RANDOM_DRAWS if name == "random" else 1
    return [select(rows, scores, k=k, seed=seed, **METHODS[name]).picks for seed in range(draws)]


def _n_different(rows: np.ndarray) -> int:
    return n_near_duplicate_groups(rows) if len(rows) else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", nargs="?", type=Path, default=None)
    parser.add_argument("--problems", type=int, default=164)
    parser.add_argument("--scores", nargs="+", choices=SCORES, default=SCORES)
    options = parser.parse_args()
    folder = options.data or data_folder()
    if not (folder / "humaneval" / PROBLEMS).exists():
        sys.exit(f"{folder / 'humaneval'} lacks {PROBLEMS} and {SAMPLES}: name the data folder, or set KOLM_DATA")
    problems = read_problems(folder)[: options.problems]
    print(f"isolation: {' '.join(isolation()) or 'NONE: this system gives no network namespace'}", flush=True)
    verdicts = []
    for problem in problems:
        verdicts.append(verdicts_of(problem))
        passed = sum(v.full for v in verdicts[-1])
        print(f"{problem.task_id}: {passed} of 100 pass, {sum(v.visible for v in verdicts[-1])} the first", flush=True)
    report(problems, verdicts, options.scores)


def report(problems: Sequence[Problem], verdicts: Sequence[Sequence[Verdict]], kinds: Sequence[str]) -> None:
    """Prints one table for each K and score."""
    texts = TextRows("humaneval")
    mixed = [(p, v) for p, v in zip(problems, verdicts, strict=True) if 0 < sum(x.full for x in v) < len(v)]
    texts.embed(sorted({body for problem, _ in mixed for body in problem.samples}))
    texts.save()
    total = sum(sum(x.full for x in v) for v in verdicts)
    print(f"{len(problems)} problems, {total} of {100 * len(problems)} samples pass; {len(mixed)} problems are mixed")
    for k in KS:
        for kind in kinds:
            print(f"\nK = {k} of 100, score: {kind}\n\n| method | picks that pass | different correct | solved |")
            print("|---|---|---|---|")
            for name in METHODS:
                print(_row(texts, mixed, k=k, kind=kind, name=name), flush=True)


def _row(texts: TextRows, mixed: Sequence[tuple[Problem, Sequence[Verdict]]], *, k: int, kind: str, name: str) -> str:
    shares, different, solved = [], [], []
    for problem, verdicts in mixed:
        rows = texts.of(problem.samples)
        full = np.array([v.full for v in verdicts])
        scores = {"unit tests": full * 1.0, "first assertion": np.array([v.visible for v in verdicts]) * 1.0}
        values = scores.get(kind, np.zeros(len(full)))
        kept = [np.array(picks) for picks in _kept(rows, values, k, name)]
        shares.append(np.mean([full[picks].mean() for picks in kept]))
        different.append(np.mean([_n_different(rows[picks[full[picks]]]) for picks in kept]))
        solved.append(np.mean([full[picks].any() for picks in kept]))
    return f"| {name} | {100 * np.mean(shares):.1f} % | {np.mean(different):.2f} | {100 * np.mean(solved):.1f} % |"


if __name__ == "__main__":
    main()
