"""Look-up as an answer grows: rolling state, no look back. The hot path of every engine's proposer.

Literal contexts are matched by one automaton (Aho and Corasick, 1975, made deterministic as it is used): a token costs
one look-up in a dict whatever the contexts' length. Shapes have their own automaton (`shapes`). A proposal is a list
look-up.
"""

from collections.abc import Iterable, Sequence
from typing import Self

from backend.domain.recipes.copy_rule_lookup import MAX_VALUE_TOKENS, CopyIndex, RequestCopies
from backend.domain.recipes.copy_rules import end_of
from backend.domain.recipes.pack import BEGIN, Recipe, RecipePack
from backend.domain.recipes.shapes import SHAPE_VERSION, ShapeTable

MAX_MEMO = 200_000  # remembered moves of the literal automaton; beyond it, a move walks at most a context's length
NONE = -1
_EMPTY: tuple[int, ...] = ()


class PackIndex:
    """A pack made ready for look-up; shared by all answers of a task. What it learns as it is used are moves that it
    would make anyway. Recipes that name a token beyond the vocabulary are left out, as are all shapes of another
    version. `shapes` may be shared by the packs of one vocabulary."""

    def __init__(self, pack: RecipePack, token_texts: Sequence[bytes], *, shapes: ShapeTable | None = None) -> None:
        self.pack = pack
        self.shapes = shapes or ShapeTable(token_texts)
        self.runs = [recipe.run for recipe in pack.recipes]
        self._by_shape: dict[str, int] = {}
        self._children: list[dict[int, int]] = [{}]
        self.recipe_at = [NONE]
        for i, recipe in enumerate(pack.recipes):
            if _fits(recipe, len(token_texts)):
                self._add(i, recipe)
        self._fails = self._link()
        self.moves: list[dict[int, int]] = [dict(children) for children in self._children]
        self._n_memo = 0
        self.of_state: dict[int, int] = {}
        self.begin = self.move(0, BEGIN)
        copies = pack.copies if pack.shape_version == SHAPE_VERSION else ()
        self.copies = CopyIndex(copies, pack.frame, self.shapes, first=len(pack.recipes)) if copies else None

    def cursor(self, prompt: Sequence[int] = ()) -> "PackCursor":
        """Stand at the beginning of an answer to `prompt`; without one nothing is copied."""
        if self.copies is None or not prompt:
            return PackCursor(self)
        return CopyingCursor(self, RequestCopies(self.copies, prompt))

    def move(self, node: int, token: int) -> int:
        """The node of the longest beginning of a context that the text's last tokens are."""
        at = node
        while at and token not in self._children[at]:
            at = self._fails[at]
        to = self._children[at].get(token, 0)
        if self._n_memo < MAX_MEMO:
            self._n_memo += 1
            self.moves[node][token] = to
        return to

    def by_shape(self, state: int) -> int:
        """The recipe of a state of `shapes`: keyed first. NONE for none."""
        known = self.of_state.get(state)
        if known is None:
            keyed = self._by_shape.get(self.shapes.keyed_text(state), NONE)
            known = keyed if keyed != NONE else self._by_shape.get(self.shapes.text(state), NONE)
            self.of_state[state] = known
        return known

    def _add(self, i: int, recipe: Recipe) -> None:
        if not recipe.after:
            if self.pack.shape_version == SHAPE_VERSION:
                self._by_shape[recipe.shape] = i
            return
        node = 0
        for token in recipe.after:
            node = self._children[node].setdefault(token, len(self._children))
            if node == len(self._children):
                self._children.append({})
                self.recipe_at.append(NONE)
        self.recipe_at[node] = i

    def _link(self) -> list[int]:
        """Each node's longest true ending that is a node too; `recipe_at` is taken over from there."""
        fails = [0] * len(self._children)
        waiting: list[int] = list(self._children[0].values())
        for node in waiting:
            if self.recipe_at[node] == NONE:
                self.recipe_at[node] = self.recipe_at[fails[node]]
            for token, child in self._children[node].items():
                at = fails[node]
                while at and token not in self._children[at]:
                    at = fails[at]
                fails[child] = self._children[at].get(token, 0)
                waiting.append(child)
        return fails


class PackCursor:
    """One answer's place in a pack."""

    __slots__ = ("_index", "_moves", "_node", "_of_state", "_proposed", "_recipe_at", "_runs", "_state", "_steps")

    def __init__(self, index: PackIndex) -> None:
        self._index = index
        self._moves, self._recipe_at, self._runs = index.moves, index.recipe_at, index.runs
        self._steps, self._of_state = index.shapes.moves, index.of_state
        self._node, self._state = index.begin, index.shapes.start
        self._proposed = NONE

    def advance(self, token: int) -> None:
        node = self._moves[self._node].get(token)
        self._node = self._index.move(self._node, token) if node is None else node
        state = self._steps[self._state].get(token)
        self._state = self._index.shapes.move(self._state, token) if state is None else state

    def propose(self, most: int) -> Sequence[int]:
        """The run of the longest literal context that matches, else of the keyed shape, else of the shape; () for
        none. At most `most` ids."""
        i = self._recipe_at[self._node]
        if i < 0:
            of_state = self._of_state.get(self._state)
            i = self._index.by_shape(self._state) if of_state is None else of_state
        self._proposed = i
        if i < 0:
            return _EMPTY
        run = self._runs[i]
        return run if len(run) <= most else run[:most]

    def copy(self) -> Self:
        """Another cursor at the same place: to look ahead."""
        other = type(self)(self._index)
        other._node, other._state, other._proposed = self._node, self._state, self._proposed
        return other

    @property
    def proposed(self) -> int:
        """The place in `pack.recipes` of what `propose` gave last, or len(recipes) and the place in `pack.copies`; -1
        for none."""
        return self._proposed

    @property
    def shape(self) -> str:
        """The shape at this place, without names of keys."""
        return self._index.shapes.text(self._state)


class CopyingCursor(PackCursor):
    """Copied values come before plain recipes, what the input's words say comes after them."""

    __slots__ = ("_copies", "_request", "_written")

    def __init__(self, index: PackIndex, request: RequestCopies) -> None:
        super().__init__(index)
        self._request, self._copies = request, request.index
        self._written: list[int] = []

    def advance(self, token: int) -> None:
        node = self._moves[self._node].get(token)
        self._node = self._index.move(self._node, token) if node is None else node
        state = self._steps[self._state].get(token)
        self._state = self._index.shapes.move(self._state, token) if state is None else state
        self._written.append(token)

    def propose(self, most: int) -> Sequence[int]:
        place = self._copies.place_of(self._state)
        run: Sequence[int] = _EMPTY
        if place:
            run, self._proposed = self._request.continue_copy(place, self._written, most)
        if not run:
            run = super().propose(most)
        if not run:
            cues = self._copies.saying_at(self._state)
            if cues:
                run, self._proposed = self._request.run_for(cues)
        return run if len(run) <= most else run[:most]

    def copy(self) -> Self:
        other = type(self)(self._index, self._request)
        other._node, other._state, other._proposed = self._node, self._state, self._proposed
        other._written = self._written[-MAX_VALUE_TOKENS:]
        return other

    @property
    def place(self) -> str:
        """Return what FOLLOWS_WORD recipes call this place: the end of a copied value, or the keyed shape."""
        value = self._copies.place_of(self._state)
        if value and self._request.is_at_end(value, self._written):
            return end_of(value)
        return self._index.shapes.keyed_text(self._state)


def _fits(recipe: Recipe, n_tokens: int) -> bool:
    ids: Iterable[int] = (*recipe.after, *recipe.run)
    return all(token < n_tokens for token in ids)
