"""`kolm init`: a short spec for a file of data, after four questions, or none where flags answer them."""

import os
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpu_runners.cli.api.connection import Connect, api_options
from gpu_runners.cli.data.looking import look_at_file
from gpu_runners.cli.data.questions import ask_budget, ask_columns, ask_task, ask_teacher
from gpu_runners.cli.data.teachers import stored_key, teacher_of
from gpu_runners.cli.display.source_tables import print_source
from gpu_runners.cli.exit_codes import OK, USAGE
from gpu_runners.cli.options import AMOUNT, DATA_HELP, MICROUSD_PER_USD, PATH, column_options
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import KolmError
from gpu_runners.terminal_text import as_line

if TYPE_CHECKING:
    from backend.domain.source_data.source import Source

GENERIC = frozenset({"train", "data", "dataset", "examples", "export", "test", "rows"})
TEACHER_HELP = "openai, anthropic, google, groq, … with :MODEL behind if not the suggested one; demo; or an address"
ANOTHER = "Or name another column of answers: --output COLUMN."
USUAL_BUDGET = 5 * MICROUSD_PER_USD


@click.command()
@click.argument("data", type=PATH, metavar="FILE", help=DATA_HELP)
@click.option("--task", metavar="SENTENCE", help="what is to be decided or written, and by what")
@column_options
@click.option("--teacher", metavar="VENDOR", help=TEACHER_HELP)
@click.option("--teacher-model", metavar="MODEL", help="the model at that address")
@click.option("--teacher-key", metavar="TK", help="the id of a stored key, tk_… (default: the newest of that vendor)")
@click.option("--budget", "budget_microusd", type=AMOUNT, metavar="USD", help="the most it may spend (default: 5)")
@click.option("--name", metavar="NAME", help="what the model is called (default: after the file)")
@click.option("--out", type=PATH, metavar="SPEC", help="where the spec goes (default: NAME.yaml here)")
@click.option("--force", is_flag=True, help="write over a spec that is there")
@click.option("--yes", "-y", is_flag=True, help="ask nothing: take what flags and the file say")
@api_options
def init(
    *,
    data: str,
    task: str | None,
    columns: Mapping[str, Any],
    teacher: str | None,
    teacher_model: str | None,
    teacher_key: str | None,
    budget_microusd: int | None,
    name: str | None,
    out: str | None,
    force: bool,
    yes: bool,
    connect: Connect,
) -> int:
    """Look at the data, ask what flags leave open, write the spec. Nothing is sent but the question which teacher keys
    are stored."""
    from backend.domain.source_data.spec_draft import DraftOptions, draft_spec, guess_task, slug_of

    slug = name or slug_of(_stem(Path(data)))
    place = Path(out or f"{slug}.yaml")
    if place.exists() and not force:
        return fail(f"{place} is there already; --force writes over it, --out names another.", code=USAGE)
    asks = not yes and sys.stdin.isatty()
    try:
        named_teacher = teacher_of(teacher, teacher_model) if teacher else None
        source = _look(data, columns, asks=asks)
    except ValueError as error:
        return fail(str(error), code=USAGE)
    except KolmError as error:
        return fail(str(error))
    if (fault := _fault(source)) is not None:
        return fail(fault)
    if task is None:
        task = ask_task(guess_task(source)) if asks else guess_task(source)
    chosen = named_teacher or (ask_teacher(teacher_model) if asks else teacher_of("openai", teacher_model))
    if budget_microusd is None:
        budget_microusd = ask_budget() if asks else USUAL_BUDGET
    key = teacher_key or stored_key(connect, chosen)
    options = DraftOptions(
        name=slug,
        task=task,
        teacher=chosen | ({"api_key": key} if key and "base_url" in chosen else {}),
        budget_usd=Decimal(budget_microusd) / MICROUSD_PER_USD,
        file=os.path.relpath(data, place.parent),
        columns=_columns_of(source),
    )
    try:
        place.write_text(draft_spec(source, options), encoding="utf-8")
    except OSError as error:
        return fail(f"{place} cannot be written: {error.strerror or error}.")
    _print_next(place, has_key=bool(key) or "base_url" not in chosen, has_answers=source.mapping.output is not None)
    return OK


def _stem(path: Path) -> str:
    """The folder's name where the file's says nothing."""
    stem = path.resolve().name if path.is_dir() else path.stem
    return path.resolve().parent.name if stem.lower() in GENERIC and path.resolve().parent.name else stem


def _look(data: str, columns: Mapping[str, Any], *, asks: bool) -> "Source":
    """Look at the data and show it; at a terminal ask whether the columns are right. Raises KolmError."""
    from gpu_runners.kolm.source_files import look

    source = look_at_file(data, columns)
    print_source(source)
    if not asks or columns:
        return source
    mapping = source.mapping
    inputs, output = ask_columns(source)
    if (tuple(inputs), output) == (mapping.inputs, mapping.output):
        return source
    group, split = (name if name not in (*inputs, output) else None for name in (mapping.group, mapping.split))
    source = look(data, input=inputs, output=output, group=group, split=split)
    print_source(source)
    return source


def _fault(source: "Source") -> str | None:
    """Say why no spec can be made of the data; None where one can."""
    from backend.domain.spec.fields import MAX_LABELS

    labels = source.profile.labels
    if not source.rows:
        return "No row can be used."
    if len(labels) == 1:
        return f"Every answer is “{as_line(labels[0].name[:40])}”, so there is nothing to learn. {ANOTHER}"
    if len(labels) > MAX_LABELS:
        return f"{len(labels):,} different labels: a spec has at most {MAX_LABELS}. Merge the rare ones. {ANOTHER}"
    return None


def _columns_of(source: "Source") -> dict[str, Any]:
    """The spec's words on the file's columns; none on chats, which have no columns."""
    mapping = source.mapping
    if source.shape != "table":
        return {}
    inputs = mapping.inputs[0] if len(mapping.inputs) == 1 else list(mapping.inputs)
    named = {"input": inputs, "output": mapping.output, "group": mapping.group, "split": mapping.split}
    return {role: name for role, name in named.items() if name}


def _print_next(place: Path, *, has_key: bool, has_answers: bool) -> None:
    print(f"{place} is written. Read it once: what each label means helps most.")
    print("Next:")
    if not has_answers:
        print(f"  write 40 or more examples with answers into {place}, and its labels: the rows have none")
    if not has_key:
        print("  kolm teacher-keys add NAME     # your teacher's key; put the id that it prints into the spec")
    print(f"  kolm compile {place} --estimate")
    print(f"  kolm doctor {place}            # whether it can end, before anything is paid")
    print(f"  kolm compile {place}")
