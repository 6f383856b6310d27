"""A task's first recipes, from an epoch of the registry: re-tokenised by text for the base that will draft with them.

Where the epoch has several runs for a shape, the tasks behind them disagree from some character on: their common
beginning is what comes. Recipes have the least support that a pack keeps: what the task's own samples say of a place
outweighs them, and what is refused in use leaves like any other recipe.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from backend.domain.recipes.pack import MAX_DRAFT, Recipe
from backend.domain.recipes.registry.epochs import Epoch
from backend.domain.recipes.shapes import SHAPE_VERSION

SUPPORT = 3  # PackOptions.min_support


def epoch_recipes(
    epoch: Epoch, encode: Callable[[str], Sequence[int]], token_texts: Sequence[bytes], *, support: int = SUPPORT
) -> list[Recipe]:
    """`encode` gives a text's token ids without special tokens; `token_texts` their bytes. An entry that the tokenizer
    does not give back byte for byte is left out, and so is a whole epoch whose shapes are of another version."""
    if epoch.shape_version != SHAPE_VERSION:
        return []
    runs = {shape: _common([e.run for e in group]) for shape, group in groupby(epoch.entries, lambda e: e.shape)}
    made = (_recipe(shape, run, encode, token_texts, support) for shape, run in runs.items())
    return [recipe for recipe in made if recipe is not None]


def _common(runs: Sequence[str]) -> str:
    """The beginning that all share; of texts in order, that of the first and the last."""
    first, last = runs[0], runs[-1]
    same = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(same, min(len(first), len(last)))]


def _recipe(
    shape: str, text: str, encode: Callable[[str], Sequence[int]], token_texts: Sequence[bytes], support: int
) -> Recipe | None:
    text = text.rstrip()  # tokens begin with the white space before a word: at an end it is half a token
    run = tuple(encode(text))[:MAX_DRAFT]
    if not run or not all(0 <= token < len(token_texts) for token in run):
        return None
    raw = b"".join(token_texts[token] for token in run)
    if not raw or not text.encode().startswith(raw):
        return None
    return Recipe(after=(), shape=shape, run=run, after_text="", run_text=raw.decode(), support=support, agreed=support)
