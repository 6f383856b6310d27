"""The last lines of a compile that was waited for: how good its model is beside the teacher, and what to type next."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from gpu_runners.terminal_text import as_line

Row = Mapping[str, Any]


def print_quality(card: Row | None) -> None:
    """Print one sentence of the quality card: the model's accuracy, then the teacher's and what answers cost; nothing
    where there is no card."""
    rows = {row["name"]: row for row in (card or {}).get("rows", ())}
    own, teacher = rows.get("student"), rows.get("teacher")
    if own is None or own["accuracy_ppm"] is None:
        return
    from backend.domain.evaluation import card_words as words

    sides = [f"{words.accuracy_words(own)} of {own['n']:,} held-out answers are right"]
    if teacher is not None and teacher["accuracy_ppm"] is not None:
        sides.append(f"the teacher's {words.accuracy_words(teacher)} of {teacher['n']:,}")
    if teacher is not None and None not in (own["per_1000_microusd"], teacher["per_1000_microusd"]):
        prices = (words.price_words(row["per_1000_microusd"]) for row in (own, teacher))
        sides.append("{} for 1,000 answers beside {}".format(*prices))
    print(as_line("; ".join(sides)) + ".")


def print_next(row: Row, *, file: str | None = None) -> None:
    """Print the commands that make sense after a compile with this end, each behind what it is for."""
    for purpose, command in _commands(row, file):
        print(as_line(f"{purpose}: {command}"))


def _commands(row: Row, file: str | None) -> Iterator[tuple[str, str]]:
    if row["status"] == "succeeded" and file is not None:
        name, path = shlex.quote(str(row["name"])), shlex.quote(file)
        yield "answer on this machine", f"kolm run {path} 'your text'"
        yield "answer a table", f"kolm run {path} --in rows.csv --out answers.csv"
        yield "answer over the API", f"kolm deployments create {name} {row['artifact']}"
    elif row["status"] == "gate_failed":
        yield "wrong held-out answers", f"kolm show {row['id']} --wrong"
    else:
        yield "what happened", f"kolm logs {row['id']}"
        yield "go on from there", f"kolm resume {row['id']}"
    yield "all of it in the console", f"kolm open {row['id']}"
