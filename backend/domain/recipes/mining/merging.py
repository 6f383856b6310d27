"""An earlier pack on its way into the next: support halves, what serving refused leaves, nothing grows for ever.

Feedback is taken as it is: what came from outside went through `feedback.checked_feedback`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from backend.domain.recipes.copy_rules import Copy, CopyKind
from backend.domain.recipes.feedback import PackFeedback
from backend.domain.recipes.observing import Observed
from backend.domain.recipes.pack import Recipe, RecipePack

LEAST_ACCEPTED_PERCENT = 90


def merge_previous(pack: RecipePack, feedback: Sequence[PackFeedback] = (), *, halvings: int = 1) -> list[Recipe]:
    """The recipes of `pack` that go on, with decayed support: `agreed` and `support` halve (rounded down) and take in
    what was tried since; who falls below support 1 or 90 % leaves. See building.build_pack(kept=)."""
    tried = tried_by_recipe(feedback)
    gone_on = (_merge(recipe, *tried.get(recipe.id, (0, 0)), halvings=halvings) for recipe in pack.recipes)
    return [recipe for recipe in gone_on if recipe is not None]


def merge_previous_copies(pack: RecipePack, feedback: Sequence[PackFeedback] = (), *, halvings: int = 1) -> list[Copy]:
    """The same of the copy recipes. See building.build_pack(kept_copies=)."""
    tried = tried_by_recipe(feedback)
    gone_on = (_merge_copy(one, *tried.get(one.id, (0, 0)), halvings=halvings) for one in pack.copies)
    return [one for one in gone_on if one is not None]


def tried_by_recipe(feedback: Sequence[PackFeedback]) -> Mapping[str, tuple[int, int]]:
    """(tried, accepted) tokens by recipe id."""
    counts: dict[str, tuple[int, int]] = {}
    for row in (row for one in feedback for row in one.tried):
        tried, accepted = counts.get(row["id"], (0, 0))
        counts[row["id"]] = tried + row["tried"], accepted + row["accepted"]
    return counts


def missed_by_shape(feedback: Sequence[PackFeedback]) -> Mapping[str, int]:
    """Tokens that came where nothing was proposed, by shape: what build_pack(missed=) weighs places by."""
    counts: dict[str, int] = {}
    for row in (row for one in feedback for row in one.missed):
        counts[row["shape"]] = counts.get(row["shape"], 0) + row["n"]
    return counts


def learned_answers(feedback: Sequence[PackFeedback], n_tokens: int) -> list[Observed]:
    """Runs of tokens that a tenant let us keep, as answers of one sample; without those that name a token beyond the
    vocabulary of `n_tokens`."""
    runs = (tuple(row["tokens"]) for one in feedback for row in one.learned)
    return [
        Observed(tokens=run, agreed=(1,) * len(run), n_samples=1)
        for run in runs
        if all(token < n_tokens for token in run)
    ]


def _merge_copy(one: Copy, tried: int, accepted: int, *, halvings: int) -> Copy | None:
    """A copied value counts once a token, for its length differs."""
    n = max(len(one.run), 1)
    support = (one.support >> halvings) + tried // n
    agreed = min((one.agreed >> halvings) + accepted // n, support)
    is_refused = accepted * 100 < tried * LEAST_ACCEPTED_PERCENT
    is_weak = one.what is not CopyKind.OPEN and agreed * 100 < support * LEAST_ACCEPTED_PERCENT
    return None if support < 1 or is_refused or is_weak else replace(one, support=support, agreed=agreed)


def _merge(recipe: Recipe, tried: int, accepted: int, *, halvings: int) -> Recipe | None:
    """A run counts as many times as its tokens were tried."""
    n = len(recipe.run)
    support = (recipe.support >> halvings) + tried // n
    agreed = min((recipe.agreed >> halvings) + accepted // n, support)
    is_refused = accepted * 100 < tried * LEAST_ACCEPTED_PERCENT
    if support < 1 or is_refused or agreed * 100 < support * LEAST_ACCEPTED_PERCENT:
        return None
    return replace(recipe, support=support, agreed=agreed)
