"""A vocabulary that tests can read: a token for each of a few texts, and a tokenizer that takes the longest."""

from collections.abc import Mapping, Sequence

from backend.domain.recipes.copy_rules import Copy, Frame
from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.observing import Observed, observe
from backend.domain.recipes.pack import Recipe, RecipePack

END = 0
TOKENIZER = "5e" * 32
_PIECES = ('{"', '": "', '", "', '"}', "city", "size", "colour", "large", "small", "red", "Bonn", "Kiel", " ", "\n")
# all bytes, so that any text can be written; the end token has no text
TEXTS: list[bytes] = [b"", *(piece.encode() for piece in _PIECES), *(bytes([byte]) for byte in range(256))]
_BY_LENGTH = sorted(range(1, len(TEXTS)), key=lambda i: -len(TEXTS[i]))


def tokens_of(text: str) -> tuple[int, ...]:
    """With the end token."""
    data, found = text.encode(), []
    while data:
        token = next(i for i in _BY_LENGTH if data.startswith(TEXTS[i]))
        found.append(token)
        data = data[len(TEXTS[token]) :]
    return (*found, END)


def observed(text: str, *samples: str) -> Observed:
    return observe(tokens_of(text), [tokens_of(sample) for sample in samples])


def pack_of(texts: Sequence[str], *, kept: Sequence[Recipe] = (), **options: object) -> RecipePack:
    return pack_of_observed([observed(text) for text in texts], kept=kept, **options)


def pack_of_observed(
    rows: Sequence[Observed],
    *,
    kept: Sequence[Recipe] = (),
    kept_copies: Sequence[Copy] = (),
    frame: Frame | None = None,
    missed: Mapping[str, int] | None = None,
    **options: object,
) -> RecipePack:
    return build_pack(
        rows,
        TEXTS,
        tokenizer_sha256=TOKENIZER,
        base="letters",
        options=PackOptions(**options),  # type: ignore[arg-type]
        kept=kept,
        kept_copies=kept_copies,
        frame=frame,
        end_ids=(END,),
        missed=missed,
    )


def recipe(*, after: str = "", shape: str = "", run: str, support: int = 5, agreed: int = 5) -> Recipe:
    return Recipe(
        after=tokens_of(after)[:-1] if after else (),
        shape=shape,
        run=tokens_of(run)[:-1],
        after_text=after,
        run_text=run,
        support=support,
        agreed=agreed,
    )


def pack(*recipes: Recipe, **changed: object) -> RecipePack:
    fields: dict[str, object] = {"tokenizer_sha256": TOKENIZER, "base": "letters", "shape_version": "kolm-shape-1"}
    return RecipePack(recipes=recipes, **(fields | changed))  # type: ignore[arg-type]
