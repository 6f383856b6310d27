"""A compile's begin and end on the terminal, and its artifact in a file."""

import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from backend.domain.number_words import percent, points, score, usd
from gpu_runners.cli.display.next_commands import print_next, print_quality
from gpu_runners.cli.display.purchases import print_purchases
from gpu_runners.cli.display.saved_drafts import saved_lines
from gpu_runners.cli.exit_codes import FAILED, GATE_FAILED, OK
from gpu_runners.kolm import Client, Unreadable
from gpu_runners.terminal_text import as_line

SHOWN_FORMS = 20  # of the texts that a span student answers with
Row = dict[str, Any]
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_DEVICE = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])")


def print_accepted(row: Row) -> None:
    print(f"{row['id']} {row['name']}: {row['status']}")
    total = (row.get("estimate") or {}).get("total")
    if total:
        low, expected, high = (usd(total[f"{name}_microusd"]) for name in ("low", "expected", "high"))
        print(f"estimate {expected} (from {low} to {high}), budget {usd(row['budget_microusd'])}", flush=True)
    for warning in (row.get("estimate") or {}).get("warnings") or ():
        print(f"warning: {warning}", flush=True)


def print_outcome(client: Client, row: Row, *, out: str | None, last: Row | None = None, compares: bool = False) -> int:
    print(f"{row['name']} {row['status']}, spent {usd(row['spent_microusd'])}" + _score(row))
    print_saved(row)
    if compares:
        print(_comparison(row, last))
    if row["status"] in ("succeeded", "gate_failed"):
        print_purchases(client.compiles.steps(row["id"]))
        print_extraction(row.get("evaluation") or {})
        print_competition(row.get("evaluation") or {})
        print_alternatives(row.get("evaluation") or {})
    if row["status"] == "succeeded":
        artifact = client.get(f"/v1/artifacts/{row['artifact']}")
        path = save_artifact(client, artifact, Path(out) if out else file_of(row["name"]))
        print(f"{path} ({artifact['size_bytes']:,} bytes)")
        print_quality(row.get("card") or artifact.get("card"))
        print_next(row, file=str(path))
        return OK
    if row["status"] == "gate_failed":
        _print_gate(row.get("gate") or {})
        print_quality(row.get("card"))
        print_next(row)
        return GATE_FAILED
    failure = row.get("failure") or {}
    if failure:
        print(f"{failure.get('step') or 'compile'}: {failure.get('message')} ({failure.get('code')})", file=sys.stderr)
    print_next(row)
    return FAILED


def print_saved(row: Row) -> None:
    """Print what drafts of earlier compiles saved this one; nothing where it looked for none."""
    for line in saved_lines(row["drafts"]) if row.get("drafts") else ():
        print(f"drafts: {line}")


def _score(row: Row) -> str:
    return "" if row.get("k_score_ppm") is None else f", K-score {score(row['k_score_ppm'])}"


def _print_gate(gate: Row) -> None:
    for floor in gate.get("floors", []):
        print(f"  {'passed' if floor.get('passed') else 'FAILED'}  {floor.get('message', floor.get('name'))}")
    if gate.get("next_step"):
        print(f"next: {gate['next_step']}")


def print_extraction(evaluation: Row) -> None:
    """Print how the values of a json task come about, leaf by leaf, as its pairs show it; of texts the forms too."""
    plan = evaluation.get("extraction") or {}
    if not plan:
        return
    right, n = plan.get("n_right", 0), plan.get("n_values", 0)
    what = "a span student brings back" if plan.get("is_extraction") else "no span student: it would bring back"
    print(f"{what} {right:,} of the {n:,} values in the pairs:")
    for form in plan.get("forms", [])[:SHOWN_FORMS]:
        print(as_line(f"  {form}"))
    for leaf in plan.get("leaves", []):
        if leaf.get("way") == "absent":
            continue
        through = ", ".join(str(one).replace("_", " ") for one in leaf.get("converters", []))
        way = f"{leaf.get('way')}{f' ({through})' if through else ''}"
        way += f", {leaf['shared']}" if leaf.get("shared") else ""
        print(as_line(f"  {leaf.get('n_right', 0):>6,} of {leaf.get('n', 0):>6,}  {leaf.get('path')}  {way}"))
    for refusal in plan.get("refusals", []):
        examples = ", ".join(map(str, refusal.get("examples", [])))
        print(as_line(f"  not {refusal.get('path')}: {refusal.get('why')}{f' ({examples})' if examples else ''}"))


def print_competition(evaluation: Row) -> None:
    """Print the students that were trained with their K-scores, where there were several, and what rules answer before
    the one that was kept."""
    trials, rules = evaluation.get("trials") or [], evaluation.get("rules") or {}
    if len(trials) > 1:
        print("students that competed:")
        for number, one in enumerate(trials):
            kept = "  kept" if number == evaluation.get("chosen") else ""
            print(as_line(f"  {_trial(one)}{kept}"))
    if rules.get("n_answered"):
        used = "before the model" if rules.get("is_used") else "worse than the model, and are left out"
        print(f"rules answer {rules['n_answered']:,} of {evaluation.get('n', 0):,} held-out inputs {used}")


def _trial(trial: Row) -> str:
    who = f"{trial.get('student') or trial.get('kind')}, rank {trial.get('rank')}"
    if trial.get("failure"):
        return f"no model  {who}: {trial['failure']}"
    floor = f"  below the gate: {trial['first_failed']}" if trial.get("first_failed") else ""
    right = percent(trial.get("accuracy_ppm", 0))
    return f"K {score(trial.get('k_score_ppm', 0))}  {right:>7} right  {who}{floor}"


def print_alternatives(evaluation: Row) -> None:
    """Print what the model was measured beside, each with its accuracy and the difference in points."""
    rows = evaluation.get("alternatives") or []
    if rows:
        print(f"beside the alternatives, on {max(one.get('n', 0) for one in rows)} held-out rows:")
    for one in rows:
        low, high = (points(one.get(f"difference_{end}_ppm", 0)) for end in ("low", "high"))
        own, theirs = (percent(one.get(name, 0)) for name in ("model_accuracy_ppm", "accuracy_ppm"))
        words = one.get("words") or one.get("name")
        print(f"  {own:>7} beside {theirs:>7}  [{low}, {high}]  {words} (n = {one.get('n')})")


def _comparison(row: Row, last: Row | None) -> str:
    if last is None:
        return f"There is no earlier artifact {row['name']!r} to compare with."
    was = last["k_score_ppm"]
    before = f"{score(was)} of version {last['version']} ({last['id']})"
    if row["k_score_ppm"] is None:
        return f"This compile has no K-score to set beside {before}."
    now = row["k_score_ppm"]
    return f"K-score {score(now)} against {before}: {'-' if now < was else '+'}{score(abs(now - was))}"


def file_of(name: Any, version: Any = None) -> Path:
    """The file of this folder that an artifact is saved as. The server says the name, so it may not lead elsewhere:
    raises Unreadable for what is no plain name (separators, a leading dot, control characters, Windows' devices)."""
    is_plain = isinstance(name, str) and _PLAIN_NAME.fullmatch(name) and not _DEVICE.fullmatch(name.split(".")[0])
    is_counted = version is None or (isinstance(version, int) and not isinstance(version, bool) and version >= 0)
    if not is_plain or not is_counted:
        raise Unreadable(
            f"The server names the artifact {str(name)[:80]!a}, version {str(version)[:20]!a}, which is no file name; "
            "choose one with --out."
        )
    return Path(f"{name}.kolm" if version is None else f"{name}-{version}.kolm")


def save_artifact(client: Client, artifact: Row, path: Path) -> Path:
    """Write what has the announced digest, whole or not at all."""
    data = client.download(f"/v1/artifacts/{artifact['id']}/download")
    if hashlib.sha256(data).hexdigest() != artifact["sha256"]:
        raise Unreadable(f"The download of {artifact['id']} does not have the announced sha256; try `kolm pull` again.")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise Unreadable(
            f"{path} cannot be written: {error.strerror or error}; choose another place with --out."
        ) from error
    return path
