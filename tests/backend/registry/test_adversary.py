"""Somebody reads an epoch and knows what tenants planted: nothing of it can be told.

The whole street: answers with planted text are read as a compile reads them, contributed, counted and released; then
the reader searches the file for every piece of what was planted.
"""

import json
import random
import re
import string
from dataclasses import dataclass

import pytest
from django.utils import timezone

from backend.domain.recipes.registry.contributed import structures_of
from backend.domain.recipes.registry.epochs import read_epoch
from backend.domain.recipes.registry.structural import WORDS
from backend.registry import epochs
from backend.registry.contributing import contribute
from tests.backend.registry.worlds import contributor
from tests.factories import make_member, make_tenant

pytestmark = pytest.mark.django_db

SHARED_KEYS = ("name", "city", "total")
PIECE = 5  # characters: what a reader would take for a find


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One tenant's own: a secret in values, a rare key, an id as a key, prose."""

    secret: str
    key: str
    number: str
    prose: str

    def answer(self, rng: random.Random) -> str:
        document = {
            "name": rng.choice(("Ann", "Bo", "Cy")),
            "city": self.secret,
            self.key: rng.randrange(10**6),
            self.number: {"note": self.prose, "total": self.secret},
            "total": 12,
        }
        return json.dumps(document)


def plant(n: int) -> Planted:
    rng = random.Random(n)
    letters, name = ("".join(rng.choices(string.ascii_lowercase, k=6)) for _ in range(2))
    return Planted(
        secret="sk-live-" + "".join(rng.choices(string.ascii_letters + string.digits, k=24)),
        key=f"project_{letters}",
        number=f"{rng.randrange(10**9)}",
        prose=f"Patient {name.title()} takes {name[::-1] * 2} twice a day.",
    )


def answers_of(planted: Planted) -> list[str]:
    rng = random.Random(planted.secret)
    return [planted.answer(rng) for _ in range(12)]


def give(answers: list[str], *, email: str | None = None) -> None:
    """To the registry as a compile does, by a tenant of its own."""
    tenant = make_tenant()
    make_member(tenant, email=email or f"owner@{tenant.id.hex[-12:]}.example")
    contribute(tenant.id, structures_of(answers), submitted_at=timezone.now())


def told() -> str:
    """All texts of the newest epoch."""
    epochs.build()
    newest = epochs.newest()
    assert newest is not None, "an epoch without anything would hide everything"
    return "\n".join(f"{entry.shape}\n{entry.run}" for entry in read_epoch(bytes(newest.data)).entries)


def pieces(text: str) -> set[str]:
    return {text[i : i + PIECE] for i in range(len(text) - PIECE + 1)}


@pytest.fixture(autouse=True)
def bare_threshold(settings):
    settings.KOLM_REGISTRY_MARGIN = 0


def test_what_each_of_many_tenants_planted_cannot_be_told_from_an_epoch_and_what_they_share_can():
    worlds = [plant(n) for n in range(12)]
    for planted in worlds:
        give(answers_of(planted))
    text = told()
    assert '"city": "' in text, "structure that all share is what an epoch is for"
    for planted in worlds:
        for own in (planted.secret, planted.key.removeprefix("project_"), planted.number, planted.prose[8:]):
            assert all(own in answer for answer in answers_of(planted)), "each of its answers says it"
            assert [piece for piece in pieces(own) if piece in text] == []
    assert set(re.findall(r"[A-Za-z_]{2,}", text)) <= WORDS | set(SHARED_KEYS) | {"json", "text", "note"} | {
        *("key", "colon", "value", "scalar", "after", "end", "NUM", "STR", "ID", "WS", "NL"),
        *(f"i{n}" for n in range(41)),
    }


def test_a_secret_that_all_tenants_share_is_no_structure_and_stays():
    """A template of a vendor's, with a key in it: k-anonymity alone would publish it."""
    same = plant(99)
    for _ in range(11):
        give(answers_of(same))
    text = told()
    for own in (same.secret, same.number, same.prose[8:]):
        assert [piece for piece in pieces(own) if piece in text] == []
    assert same.key in text, "the name of a member that eleven parties use is structure"


def test_a_key_of_one_company_stays_however_many_workspaces_it_has():
    same = plant(7)
    for n in range(12):
        give(answers_of(same), email=f"p{n}@agency.example")
    for _ in range(10):
        give(answers_of(plant(100)))
    text = told()
    assert '"city": "' in text
    assert [piece for piece in pieces(same.key.removeprefix("project_")) if piece in text] == []


def test_many_short_runs_do_not_add_up_to_what_one_long_run_may_not_say():
    """A name is spelled over many entries, each of which nine share: every letter is held back by itself."""
    name = "nightingale"
    runs = [("json d1 key #1 | STR : STR ,", f' "{name[: n + 1]}": "') for n in range(len(name))]
    for _ in range(9):
        contributor(*runs)
    for _ in range(10):
        contributor(("json d1 key #1 | STR : STR ,", ' "city": "'))
    assert re.findall(r'"(\w+)"', told()) == ["city"]
