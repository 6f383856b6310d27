"""`kolm init`: a short spec for a file of data, after four questions, or none where flags answer them."""

import os
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpu_runners.cli.api.connection import Connect, api_options
from gpu_runners.cli.display.source_tables import print_source
from gpu_runners.cli.exit_codes import OK, USAGE
from gpu_runners.cli.options import AMOUNT, DATA_HELP, MICROUSD_PER_USD, column_options
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import KolmError

if TYPE_CHECKING:
    from backend.domain.source_data.source import Source

GENERIC = frozenset({"train", "data", "dataset", "examples", "export", "test", "rows"})
TEACHER_HELP = "openai, anthropic, google, groq, … with :MODEL behind if not the suggested one; demo; or an address"
USUAL_BUDGET = 5 * MICROUSD_PER_USD


@click.command()
@click.argument("data", metavar="FILE", help=DATA_HELP)
@click.option("--task", metavar="SENTENCE", help="what is to be decided or written, and by what")
@column_options
@click.option("--teacher", metavar="VENDOR", help=TEACHER_HELP)
@click.option("--teacher-model", metavar="MODEL", help="the model at that address")
@click.option("--teacher-key", metavar="TK", help="the id of a stored key, tk_… (default: the newest of that vendor)")
@click.option("--budget", "budget_microusd", type=AMOUNT, metavar="USD", help="the most it may spend (default: 5)")
@click.option("--name", metavar="NAME", help="what the model is called (default: after the file)")
@click.option("--out", metavar="SPEC", help="where the spec goes (default: NAME.yaml here)")
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
        source = _look(data, columns, asks=asks)
    except KolmError as error:
        return fail(str(error))
    if task is None:
        guess = guess_task(source)
        task = click.prompt("The task, in a sentence", default=guess, err=True) if asks else guess
    try:
        chosen = _teacher(teacher or (_ask_teacher() if asks else "openai"), teacher_model)
    except ValueError as error:
        return fail(str(error), code=USAGE)
    if budget_microusd is None:
        budget_microusd = click.prompt("At most, in USD", default="5", type=AMOUNT, err=True) if asks else USUAL_BUDGET
    key = teacher_key or _stored_key(connect, chosen)
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
    _print_next(place, has_key=bool(key) or "base_url" not in chosen)
    return OK


def _stem(path: Path) -> str:
    """The folder's name where the file's says nothing."""
    stem = path.resolve().name if path.is_dir() else path.stem
    return path.resolve().parent.name if stem.lower() in GENERIC and path.resolve().parent.name else stem


def _look(data: str, columns: Mapping[str, Any], *, asks: bool) -> "Source":
    """Look at the data and show it; at a terminal ask whether the columns are right. Raises KolmError."""
    from gpu_runners.kolm.source_files import look

    source = look(data, **columns)
    print_source(source)
    if not asks or columns:
        return source
    names = ", ".join(source.columns)
    inputs = click.prompt(f"Column of inputs ({names})", default=",".join(source.mapping.inputs), err=True)
    output = click.prompt("Column of answers (- for none)", default=source.mapping.output or "-", err=True)
    chosen = [name.strip() for name in inputs.split(",")]
    if chosen == list(source.mapping.inputs) and output in (source.mapping.output, "-"):
        return source
    answers = None if output == "-" else output
    source = look(data, input=chosen, output=answers, group=source.mapping.group, split=source.mapping.split)
    print_source(source)
    return source


def _columns_of(source: "Source") -> dict[str, Any]:
    """The spec's words on the file's columns; none on chats, which have no columns."""
    mapping = source.mapping
    if source.shape != "table":
        return {}
    inputs = mapping.inputs[0] if len(mapping.inputs) == 1 else list(mapping.inputs)
    named = {"input": inputs, "output": mapping.output, "group": mapping.group, "split": mapping.split}
    return {role: name for role, name in named.items() if name}


def _ask_teacher() -> str:
    from backend.domain.money.teacher_catalog import VENDORS

    names = ", ".join(vendor.provider for vendor in VENDORS)
    return str(click.prompt(f"The teacher ({names}, demo, or an address)", default="openai", err=True))


def _teacher(text: str, model: str | None) -> dict[str, Any]:
    """The teacher of a spec. Raises ValueError."""
    from backend.domain.money.teacher_catalog import VENDORS, find_vendor
    from backend.domain.source_data.spec_draft import DEMO_TEACHER

    if text == "demo":
        return dict(DEMO_TEACHER)
    if text.startswith(("http://", "https://")):
        if model is None:
            raise ValueError("An address needs the model's name there: --teacher-model MODEL.")
        return {"provider": "openai_compatible", "base_url": text, "model": model}
    provider, _, named = text.partition(":")
    vendor = find_vendor(provider.lower())
    if vendor is None:
        names = ", ".join(each.provider for each in VENDORS)
        raise ValueError(f"{provider!r} is no vendor that is known here: {names}, demo, or an address.")
    return {"provider": "openai_compatible", "base_url": vendor.base_url, "model": model or named or vendor.suggested}


def _stored_key(connect: Connect, teacher: Mapping[str, Any]) -> str | None:
    """The newest stored key that is called after the vendor; None without a login, or without such a key."""
    from backend.domain.money.teacher_catalog import VENDORS

    vendor = next((each for each in VENDORS if each.base_url == teacher.get("base_url")), None)
    if vendor is None:
        return None
    try:
        with connect() as client:
            keys = client.teacher_keys.list(limit=100)
            return next(
                (key.id for key in keys if vendor.provider in key.name.lower() or vendor.name in key.name), None
            )
    except KolmError:
        return None


def _print_next(place: Path, *, has_key: bool) -> None:
    print(f"{place} is written. Read it once: what each label means helps most.")
    print("Next:")
    if not has_key:
        print("  kolm teacher-keys add NAME     # your teacher's key; put the id that it prints into the spec")
    print(f"  kolm compile {place} --estimate")
    print(f"  kolm doctor {place}            # whether it can end, before anything is paid")
    print(f"  kolm compile {place}")
