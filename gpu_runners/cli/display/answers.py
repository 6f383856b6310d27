"""The answers of an artifact on standard output: a line each, and on a terminal in colours, with the places of the
input that a span student copied from. Texts and labels are a stranger's: each piece is escaped before it is drawn."""

from collections.abc import Mapping, Sequence
from typing import Any

from backend.domain.evaluation.spans import SURE_PPM, model_spans, segments
from backend.domain.number_words import milliseconds, score
from gpu_runners.terminal_text import as_line, as_text

SHOWN_FIELDS = 5  # of those that a span student is not sure of
SHOWN_CHARS = 1_000  # of an input whose spans are shown
SURE, DOUBTED = "bold green", "bold yellow"
Output = Mapping[str, Any]


def print_answer(text: str, output: Output, *, is_drawn: bool) -> None:
    """Print one answer; `is_drawn` where colours are seen."""
    if not is_drawn:
        print(line_of(output))
        return
    from rich.text import Text

    from gpu_runners.cli.display.printing import console

    answer, rest = _parts(output)
    is_doubted = bool(output.get("is_unsure"))
    drawn = Text(as_text(answer), style=DOUBTED if is_doubted else SURE).append(as_text(rest), style="not bold default")
    console().print(drawn, soft_wrap=True)
    if output.get("fields"):
        console().print(_mark_input(text, output["fields"]), soft_wrap=True)


def line_of(output: Output) -> str:
    """The answer as a line of plain text."""
    return "".join(_parts(output))


def _parts(output: Output) -> tuple[str, str]:
    """(the answer, what is known of it)."""
    rule = f"  rule {output['rule']}" if output.get("rule") else "  rules" if "rule" in output else ""
    if "label" in output:
        doubt = "  unsure" if output.get("is_unsure") else ""
        rest = f"  {_sure(output)}{doubt}  {milliseconds(output['latency_us'])}{rule}"
        return as_line(output["label"]), rest
    sure = f"  {_sure(output)}" if "confidence" in output else ""
    cut = "" if output["finish_reason"] == "stop" else "  (cut off)"
    return output["output"], f"{cut}{sure}{rule}{_unsure(output.get('fields', ()))}"


def _sure(output: Output) -> str:
    return score(round(output["confidence"] * 1_000_000))


def _mark_input(text: str, fields: Sequence[Output]) -> Any:
    """The input, the copied places in colours and each with the field that it went to."""
    from rich.text import Text

    line = Text("  ")
    for part in segments(text[:SHOWN_CHARS], model_spans(fields, text[:SHOWN_CHARS])):
        if not part.spans:
            line.append(as_line(part.text), style="dim")
            continue
        is_sure = all((span.confidence_ppm or 0) >= SURE_PPM for span in part.spans)
        line.append(as_line(part.text), style=f"{SURE if is_sure else DOUBTED} underline")
        line.append(f" {as_line(part.spans[-1].path)}", style="italic")
    return line if len(text) <= SHOWN_CHARS else line.append(" …", style="dim")


def _unsure(fields: Sequence[Mapping[str, Any]]) -> str:
    """The fields of a span student's answer that it is not sure of, the least sure first; "" for none."""
    doubted = sorted((one for one in fields if one["confidence_ppm"] < SURE_PPM), key=lambda one: one["confidence_ppm"])
    named = [f"{as_line(one['path'])} {score(one['confidence_ppm'])}" for one in doubted[:SHOWN_FIELDS]]
    more = f" and {len(doubted) - SHOWN_FIELDS} more" if len(doubted) > SHOWN_FIELDS else ""
    return f"  unsure of {', '.join(named)}{more}" if named else ""
