"""Wrong held-out answers on the terminal. Inputs and answers are a stranger's: every piece of them is escaped before it
is drawn."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from backend.domain.number_words import score
from gpu_runners.cli.display.printing import console, print_table
from gpu_runners.kolm import HeldoutAnswer
from gpu_runners.terminal_text import as_line

INPUT_CHARS = 1_000  # of one input
VALUE_CHARS = 200
ROWS = 10  # of a table
STYLES = {"model": "reverse", "gold": "bold green", "predicted": "bold red"}
Row = Mapping[str, Any]


def print_confusions(answer: Row) -> None:
    """Print how many are wrong, in which fields or labels, and the values that are taken for others."""
    invalid = f", {answer['n_invalid']} fail a check" if answer["n_invalid"] else ""
    print(f"{answer['n_wrong']} of {answer['n']} held-out answers are wrong{invalid}.")
    is_label = answer["task"] == "label"
    name, score = ("label", "recall") if is_label else ("field", "F1")
    if answer["worst"] is not None:
        worst = next(part for part in answer["parts"] if part["name"] == answer["worst"])
        print(f"The worst {name} is {as_line(worst['name'])}: {score} {_share(worst['score_ppm'])}, n = {worst['n']}.")
    parts = [part for part in answer["parts"] if part["n_wrong"]][:ROWS]
    if parts:
        cells = (
            (as_line(part["name"]), str(part["n"]), _share(part["score_ppm"]), str(part["n_wrong"])) for part in parts
        )
        console().print()
        print_table((name, "in gold", score, "rows wrong"), cells, right=(1, 2, 3), none="")
    if answer["confusions"]:
        values = (
            (*([] if is_label else [as_line(one["field"])]), _value(one["gold"]), _value(one["predicted"]),
             str(one["count"]))
            for one in answer["confusions"][:ROWS]
        )  # fmt: skip
        titles = ("gold", "answered", "times") if is_label else ("field", "gold", "answered", "times")
        console().print()
        print_table(titles, values, right=(len(titles) - 1,), none="")
    for check in answer["failed_checks"][:ROWS]:
        print(f"{check['n']} fail the check {as_line(check['name'])}")


def print_answers(answers: Sequence[HeldoutAnswer], *, task: str, n_wrong: int | None) -> None:
    """Print each answer: what is wrong with it, then its input. `n_wrong` is how many there are where nothing was left
    out by a filter."""
    for answer in answers:
        print()
        print(f"row {answer.row}: {'; '.join(_faults(answer, task))}")
        _print_input(answer)
    if not answers:
        print("No wrong answer fits." if n_wrong is None else "No held-out answer is wrong.")
    elif n_wrong is not None and n_wrong > len(answers):
        print(f"\nThese are {len(answers)} of {n_wrong}; --limit shows more, --field, --label and --check others.")


def _faults(answer: HeldoutAnswer, task: str) -> Iterable[str]:
    """Say what is wrong with it, and how sure the model was."""
    if task == "label":
        yield f"{as_line(answer.gold)}, answered {as_line(answer.predicted) or 'none of the labels'}"
    for one in answer.differences:
        yield f"{as_line(one['field'])} {_difference(one)}"
    if task == "text":
        yield f"answered {_clip(as_line(answer.predicted), INPUT_CHARS)}"
        yield f"gold {_clip(as_line(answer.gold), INPUT_CHARS)}"
    if answer.failed_checks:
        yield f"fails {', '.join(map(as_line, answer.failed_checks))}"
        if task == "json":
            yield f"answered {_clip(as_line(answer.predicted), INPUT_CHARS)}"
    if answer.verdict == "loss":
        yield "the judge preferred gold"
    if answer.confidence_ppm is not None:
        yield f"confidence {_share(answer.confidence_ppm)}{' (unsure)' if answer.is_unsure else ''}"
    if answer.is_by_rule:
        yield "a rule answered"


def _difference(one: Row) -> str:
    if one["kind"] == "order":
        return "the order of a list differs"
    sides = (", ".join(map(_value, one[side])) or "nothing" for side in ("gold", "predicted"))
    return ", answered ".join(sides)


def _print_input(answer: HeldoutAnswer) -> None:
    from backend.domain.evaluation.spans import Span, SpanSource, segments

    known = {source.value for source in SpanSource}
    spans = [
        Span(path=str(one["path"]), source=SpanSource(one["source"]), start=one["start"], end=one["end"])
        for one in answer.spans
        if one["source"] in known
    ]
    line = Text("  ")
    for part in segments(answer.input[:INPUT_CHARS], spans):
        line.append(as_line(part.text), style=STYLES[part.spans[-1].source] if part.spans else "")
    if len(answer.input) > INPUT_CHARS:
        line.append(f" … {len(answer.input):,} characters", style="dim")
    console().print(line, soft_wrap=True)
    for one in answer.spans:
        if one["source"] == "model":
            place = "not copied" if one["start"] is None else f"copied from {one['start']} to {one['end']}"
            sure = "" if one.get("confidence_ppm") is None else f", {_share(one['confidence_ppm'])}"
            print(f"  {as_line(str(one['path']))}: {place}{sure}")


def _value(value: Any) -> str:
    """A value of an answer as JSON; a text without its quotes where it can be nothing else."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) and value and not _is_json(value) else json.dumps(value, ensure_ascii=False)
    return _clip(as_line(text), VALUE_CHARS)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text == "nothing"
    return True


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _share(ppm: int | None) -> str:
    return "none" if ppm is None else score(ppm)
