"""`kolm recipes`, `kolm rules`: what an intact `.kolm` ships in front of its model, for people to read.

Packs and rules are hostile until they were read strictly, and texts of them are shown as JSON texts: whatever they
hold, they move no cursor.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from backend.domain.artifact.kolm_verify import Kolm
from backend.domain.number_words import score
from backend.domain.recipes.copy_rules import Copy
from backend.domain.recipes.pack import InvalidPack, Recipe, RecipePack, read_pack
from backend.domain.rules.reading import read_rules
from backend.domain.rules.rule_list import InvalidRules, Rule, RuleList
from backend.domain.rules.rule_words import describe
from gpu_runners.cli.artifacts.loading import Refused, read_intact
from gpu_runners.cli.options import PATH, file_argument, json_option
from gpu_runners.cli.terminal import fail

_SHOWN_CHARS = 60


@click.command()
@file_argument
@click.option("--top", type=int, default=20, metavar="N", help="how many are shown (0: all)")
@json_option("one JSON object a line")
@click.option(
    "--llama-lookup",
    type=PATH,
    metavar="OUT",
    help="write llama-server's --lookup-cache-static file (the artifact's base must be on this machine)",
)
def recipes(*, file: str, top: int, as_json: bool, llama_lookup: str | None) -> int:
    """The pack's recipes, the biggest savings first."""
    if llama_lookup is not None:
        from gpu_runners.cli.artifacts.recipe_export import write_lookup

        return write_lookup(file, llama_lookup)
    try:
        kolm = read_intact(file)
        pack = read_pack(kolm.members.get("recipes.json", b""))
    except Refused as error:
        return fail(str(error), code=error.exit_code)
    except InvalidPack as error:
        return fail(f"{file}: its recipes.json is none: {error.message}")
    ordered = sorted(pack.recipes, key=lambda recipe: (-count_saved(recipe), recipe.id))
    shown = ordered[:top] if top else ordered
    copies = pack.copies[:top] if top else pack.copies
    if as_json:
        for row in (*map(_row, shown), *map(_copy_row, copies)):
            print(json.dumps(row, ensure_ascii=False))
        return 0
    print(pack_line(kolm))
    _print_recipes(shown)
    if pack.copies:
        print("What the input says, in the order in which it is asked:")
        _print_copies(copies)
    left = len(pack.recipes) + len(pack.copies) - len(shown) - len(copies)
    if left:
        print(f"and {left:,} more: --top 0 shows all")
    return 0


@click.command()
@file_argument
@click.option(
    "--javascript",
    is_flag=False,
    flag_value="-",
    type=PATH,
    metavar="OUT",
    help="write an ES module (default: standard output)",
)
@json_option("rules.json, indented")
def rules(*, file: str, javascript: str | None, as_json: bool) -> int:
    """The rules in the order in which they are asked, or as a JavaScript module."""
    try:
        kolm = read_intact(file)
        rule_list = read_rules(kolm.members.get("rules.json", b"[]"))
    except Refused as error:
        return fail(str(error), code=error.exit_code)
    except InvalidRules as error:
        return fail(f"{file}: its rules.json is none: {error.message}")
    if javascript is not None:
        return _export(rule_list, javascript)
    if as_json:
        print(json.dumps(rule_list.to_json(), ensure_ascii=False, indent=2))
        return 0
    print(rules_line(kolm))
    _print_rules(rule_list)
    return 0


def count_saved(recipe: Recipe) -> int:
    """Tokens of the observed answers that this run alone would have drafted rightly."""
    return recipe.agreed * len(recipe.run)


def pack_line(kolm: Kolm) -> str:
    """The artifact's pack in a line."""
    data = kolm.members.get("recipes.json", b"")
    try:
        pack = read_pack(data)
    except InvalidPack as error:
        return f"cannot be read, so nothing is drafted: {error.message}"
    chosen = " then ".join(pack.sources) or "nothing, the model writes every token"
    if pack.is_empty:
        return f"none; drafts: {chosen}"
    number = f"{len(pack.recipes):,}" + (f" and {len(pack.copies):,} of the input" if pack.copies else "")
    return (
        f"{number} in {len(data):,} bytes, runs of up to {_longest(pack)} tokens; drafts: {chosen}; "
        f"tokenizer {pack.tokenizer_sha256[:16]}…"
    )


def rules_line(kolm: Kolm) -> str:
    """The artifact's rules in a line."""
    data = kolm.members.get("rules.json", b"[]")
    try:
        rule_list = read_rules(data)
    except InvalidRules as error:
        return f"cannot be read, so the model answers: {error.message}"
    if not rule_list.n:
        return "none"
    lowest = min(rule.evidence.low_ppm for rule in rule_list.rules)
    fields = f" for {len(rule_list.fields)} fields" if rule_list.task == "json" else ""
    return f"{rule_list.n:,}{fields} in {len(data):,} bytes; lowest bound of precision {score(lowest)}"


def _longest(pack: RecipePack) -> int:
    runs = [recipe.run for recipe in pack.recipes] + [one.run for one in pack.copies]
    return max(map(len, runs))


def _row(recipe: Recipe) -> dict[str, object]:
    return {
        "id": recipe.id,
        "after": recipe.after_text,
        "shape": recipe.shape,
        "run": recipe.run_text,
        "n_tokens": len(recipe.run),
        "support": recipe.support,
        "agreed": recipe.agreed,
        "saved_tokens": count_saved(recipe),
    }


def _copy_row(one: Copy) -> dict[str, object]:
    return {
        "id": one.id,
        "what": str(one.what),
        "place": one.place,
        "cue": one.cue,
        "run": one.run_text,
        "n_tokens": len(one.run),
        "support": one.support,
        "agreed": one.agreed,
    }


def _print_copies(shown: Sequence[Copy]) -> None:
    from gpu_runners.cli.display.printing import print_table

    rows = [
        (
            f"{one.agreed:,}/{one.support:,}",
            _cut(one.place),
            _cut(one.cue) if one.cue else "always",
            f"says {_cut(one.run_text)}" if one.run else str(one.what),
        )
        for one in shown
    ]
    print_table(["HELD", "AT", "INPUT", "THEN"], rows, right=(0,), none="It holds none.")


def _print_recipes(shown: Sequence[Recipe]) -> None:
    from gpu_runners.cli.display.printing import print_table

    rows = [
        (
            f"{count_saved(recipe):,}",
            f"{recipe.agreed:,}/{recipe.support:,}",
            str(len(recipe.run)),
            _cut(recipe.after_text) if recipe.after else f"any {recipe.shape}",
            _cut(recipe.run_text),
        )
        for recipe in shown
    ]
    print_table(["SAVED", "HELD", "TOKENS", "AFTER", "COMES"], rows, right=(0, 1, 2), none="It holds no recipe.")


def _print_rules(rule_list: RuleList) -> None:
    from gpu_runners.cli.display.printing import print_table

    rows = [
        (str(n), *describe(rule, rule_list), f"{rule.evidence.right}/{rule.evidence.support}", _bound(rule))
        for n, rule in enumerate(rule_list.rules, start=1)
    ]
    print_table(["RULE", "WHEN", "ANSWER", "RIGHT", "BOUND"], rows, right=(0, 3, 4), none="It holds no rule.")


def _bound(rule: Rule) -> str:
    return score(rule.evidence.low_ppm)


def _cut(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 1] + "…"


def _export(rule_list: RuleList, path: str) -> int:
    from backend.domain.rules.javascript.export import to_javascript

    text = to_javascript(rule_list)
    if path == "-":
        print(text, end="")
        return 0
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        return fail(f"{path} cannot be written ({error.strerror}).")
    print(f"{path}: {rule_list.n} rules as `answer(text)`, in {len(text.encode()):,} bytes.")
    return 0
