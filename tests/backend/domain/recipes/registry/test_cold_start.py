"""An epoch as a task's first recipes."""

import dataclasses

from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.registry.cold_start import epoch_recipes
from backend.domain.recipes.registry.epochs import Entry, Epoch, read_epoch
from tests.backend.domain.recipes.registry.test_epochs import SHAPE, small

BYTES = [bytes([n]) for n in range(256)]


def encode(text: str) -> list[int]:
    return list(text.encode())


def epoch_of(*places: tuple[str, str]) -> Epoch:
    return read_epoch(small(entries=[Entry(shape=shape, run=run) for shape, run in places]))


def test_recipes_are_the_entries_in_the_tokens_of_the_base():
    epoch = epoch_of((SHAPE, ' "city": "'), ("text d0 i0 |", '{"name": "'))
    found = epoch_recipes(epoch, encode, BYTES)
    assert {(recipe.shape, recipe.run_text) for recipe in found} == {(e.shape, e.run) for e in epoch.entries}
    assert all(recipe.after == () and recipe.run == tuple(encode(recipe.run_text)) for recipe in found)


def test_where_tasks_disagree_their_common_beginning_is_what_comes():
    assert [recipe.run_text for recipe in epoch_recipes(read_epoch(small()), encode, BYTES)] == [' "']
    assert epoch_recipes(epoch_of((SHAPE, ' "'), (SHAPE, "}")), encode, BYTES) == []


def test_what_the_tokenizer_does_not_give_back_is_left_out():
    epoch = epoch_of((SHAPE, ' "city": "'))
    for broken in (lambda text: encode(text.replace("city", "town")), lambda text: [], lambda text: [400, -1]):
        assert epoch_recipes(epoch, broken, BYTES) == []


def test_an_epoch_of_another_version_of_shapes_gives_nothing():
    epoch = dataclasses.replace(read_epoch(small()), shape_version="kolm-shape-0")
    assert epoch_recipes(epoch, encode, BYTES) == []


def test_a_pack_that_begins_with_an_epoch_drafts_from_it():
    pack = build_pack(
        [],
        BYTES,
        tokenizer_sha256="a" * 64,
        base="b",
        options=PackOptions(),
        kept=epoch_recipes(epoch_of((SHAPE, ' "city": "')), encode, BYTES),
    )
    cursor = PackIndex(pack, BYTES).cursor()
    for token in encode('{"name":"Ann",'):
        cursor.advance(token)
    assert bytes(cursor.propose(16)).decode() == ' "city": "'
