"""The kinds of spans that a generated message mentions: how one looks, how it is said, how a schema calls it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from gpu_runners.tiny_base import words

_ONSETS = "b br c ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t tr v w z".split()  # noqa: SIM905
_VOWELS = "a e i o u ai ea ou ie y á é ö".split()  # noqa: SIM905
_CODAS = ["", "", "n", "r", "s", "l", "m", "x", "t", "ck", "nd", "th"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`say` are phrases with {v}; `fields` are names that a schema may give it; `is_number` values are written without
    quotes."""

    fields: tuple[str, ...]
    say: tuple[str, ...]
    make: Callable[[random.Random], str]
    is_number: bool = False


def pseudo_word(rng: random.Random) -> str:
    """A word that nobody has seen: what is copied must not be known by heart."""
    text = "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(rng.choice((1, 2, 2, 3)))
    )
    return text.capitalize() if rng.random() < 0.5 else text


def _person(rng: random.Random) -> str:
    first = rng.choice(words.FIRST) if rng.random() < 0.6 else pseudo_word(rng).capitalize()
    last = rng.choice(words.LAST) if rng.random() < 0.5 else pseudo_word(rng).capitalize()
    return first if rng.random() < 0.3 else f"{first} {last}"


def _city(rng: random.Random) -> str:
    name = rng.choice(words.CITIES) if rng.random() < 0.5 else pseudo_word(rng).capitalize()
    return f"{rng.choice(('New', 'San', 'Port', 'Saint'))} {name}" if rng.random() < 0.2 else name


def _title(rng: random.Random) -> str:
    count = rng.choice((1, 2, 2, 3, 4))
    return " ".join(
        rng.choice(words.TITLE_WORDS) if rng.random() < 0.7 else pseudo_word(rng).capitalize() for _ in range(count)
    )


def _thing(rng: random.Random) -> str:
    head = f"{rng.choice(words.COLORS)} " if rng.random() < 0.5 else ""
    return head + (rng.choice(words.THINGS) if rng.random() < 0.7 else pseudo_word(rng).lower())


def _date(rng: random.Random) -> str:
    day, month = rng.randint(1, 28), rng.randint(1, 12)
    forms = (
        rng.choice(words.DAYS),
        f"{rng.choice(words.MONTHS)} {day}",
        f"{day} {rng.choice(words.MONTHS)}",
        f"{rng.randint(2019, 2029)}-{month:02d}-{day:02d}",
        f"next {rng.choice(words.DAYS)}",
    )
    return rng.choice(forms)


def _code(rng: random.Random) -> str:
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 6)))
    return rng.choice(("", "", "A", "AB-", "K", "#", "X-")) + digits


def _time(rng: random.Random) -> str:
    return rng.choice(
        (f"{rng.randint(1, 12)} {rng.choice(('am', 'pm'))}", f"{rng.randint(0, 23)}:{rng.randint(0, 59):02d}")
    )


def _email(rng: random.Random) -> str:
    return f"{pseudo_word(rng).lower()}@{pseudo_word(rng).lower()}.{rng.choice(('com', 'org', 'net'))}"


KINDS: dict[str, Kind] = {
    "person": Kind(
        fields=("name", "customer", "person"),
        say=("my name is {v}", "this is {v}", "for {v}", "{v} asked for it"),
        make=_person,
    ),
    "city": Kind(
        fields=("city", "place", "location"),
        say=("in {v}", "near {v}", "i live in {v}", "going to {v}"),
        make=_city,
    ),
    "title": Kind(
        fields=("title", "playlist", "song"),
        say=("called {v}", "the title is {v}", "play {v}", "the song {v}"),
        make=_title,
    ),
    "thing": Kind(
        fields=("item", "product", "article"),
        say=("the {v} i bought", "a {v}", "my {v} is broken", "i ordered the {v}"),
        make=_thing,
    ),
    "date": Kind(
        fields=("date", "day"),
        say=("on {v}", "since {v}", "the date is {v}"),
        make=_date,
    ),
    "time": Kind(fields=("time", "hour"), say=("at {v}", "around {v}"), make=_time),
    "code": Kind(
        fields=("order", "order_id", "number"),
        say=("order {v}", "order number {v}", "reference {v}"),
        make=_code,
    ),
    "amount": Kind(
        fields=("amount", "price", "total"),
        say=("{v} dollars", "it cost {v} dollars", "i paid {v} euros"),
        make=lambda rng: str(rng.choice((rng.randint(1, 99), rng.randint(100, 999), rng.randint(1000, 9999)))),
        is_number=True,
    ),
    "count": Kind(
        fields=("quantity", "guests", "count"),
        say=("{v} of them", "a table for {v}", "{v} people", "{v} pieces"),
        make=lambda rng: str(rng.randint(1, 20)),
        is_number=True,
    ),
    "email": Kind(fields=("email", "mail"), say=("my email is {v}", "write to {v}"), make=_email),
    "cuisine": Kind(
        fields=("cuisine", "food"),
        say=("{v} food", "a {v} restaurant"),
        make=lambda rng: rng.choice(words.CUISINES),
    ),
}
