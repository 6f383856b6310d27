"""A judge's answer is hostile: 50,000 malformed ones accept nothing, and one that is forged in the right form meets the
negative control."""

import itertools
import json
import random
from collections.abc import Callable

import pytest

from backend.domain.drafts.judge_controls import controls_of, exact_interval
from backend.domain.drafts.vocabulary import VerdictKind
from tests.workers.teachers.judges.simulated_judges import answered, asked_about, drafts_of, hold, say
from workers.teachers.judges.batches import IDS, NO_DRAFT, Item, Reading, batch_of
from workers.teachers.judges.draft_judge import JudgeVerifier
from workers.teachers.prompts.judge import read_verdicts

Forger = Callable[[list[str], random.Random], str]


def _yes(ids: list[str]) -> str:
    return json.dumps(ids)


# of an id, each no id of any batch
_LOOKALIKES: tuple[Callable[[str], str], ...] = (
    str.upper,
    str.title,
    lambda i: "".join(chr(ord(c) + 0xFEE0) for c in i),  # full width
    lambda i: "".join(chr(ord(c) - ord("a") + 0x1D41A) for c in i),  # mathematical bold
    lambda i: i[0] + "\u200b" + i[1],
    lambda i: i + "\u0301",
    lambda i: "\u202e" + i,
    lambda i: i + "\x00",
    lambda i: f" {i}",
    lambda i: f"{i}\n",
    lambda i: i[0],
    lambda i: i + i[1],
    lambda i: i[0] + "0",
    lambda i: i + i,
    lambda i: f"{i},{i}",
    lambda i: f"'{i}'",
)


def _cut(ids: list[str], rng: random.Random) -> str:
    answer = _yes(ids)
    return answer[: rng.randrange(len(answer))]


def _shuffled(rows: list[str], rng: random.Random) -> list[str]:
    return rng.sample(rows, len(rows))


def _with_value(value: str) -> Forger:
    """A raw JSON value beside the ids."""
    return lambda ids, rng: "[" + ", ".join(_shuffled([*(f'"{i}"' for i in ids), value], rng)) + "]"


def _one_raw(change: Callable[[str], str]) -> Forger:
    """Something else in the place of one id."""

    def forge(ids: list[str], rng: random.Random) -> str:
        at = rng.randrange(len(ids))
        return "[" + ", ".join(change(i) if n == at else json.dumps(i) for n, i in enumerate(ids)) + "]"

    return forge


def _lookalike(change: Callable[[str], str], *, is_ascii: bool) -> Forger:
    return _one_raw(lambda i: json.dumps(change(i), ensure_ascii=is_ascii))


def _around(before: str, after: str = "") -> Forger:
    return lambda ids, rng: before + _yes(ids) + after


def _duplicate(ids: list[str], rng: random.Random) -> str:
    """One id twice, whatever else is named."""
    twice = rng.choice(ids)
    return _yes(_shuffled([*rng.sample(ids, rng.randrange(len(ids))), twice, twice], rng))


def _of_another_batch(ids: list[str], rng: random.Random) -> str:
    """One id, or all of them, in the right form, but asked elsewhere."""
    others = [id_ for id_ in IDS if id_ not in ids]
    some = rng.sample(ids, rng.randrange(len(ids)))
    return _yes(rng.sample(others, len(ids)) if rng.random() < 0.5 else _shuffled([*some, rng.choice(others)], rng))


def _swapped_quotes(ids: list[str], rng: random.Random) -> str:
    return _yes(ids).replace('"', rng.choice(["'", "“", "`", '\\"', ""]))


def _swapped_commas(ids: list[str], rng: random.Random) -> str:
    return _yes(ids).replace(",", rng.choice([";", "،", "\n", "", ",,", " and", "\xa0,"]))


FORGERS: tuple[Forger, ...] = (
    _cut,
    _duplicate,
    _of_another_batch,
    _swapped_quotes,
    _swapped_commas,
    *(_lookalike(change, is_ascii=False) for change in _LOOKALIKES),
    *(_lookalike(change, is_ascii=True) for change in _LOOKALIKES),
    *(
        _one_raw(lambda i, value=value: value)
        for value in ("NaN", "Infinity", "-1", "1e999", "null", "true", "Y", "{}")
    ),
    *(_one_raw(lambda i, value=value: value) for value in ('""', "0", '"all"', '"*"', '"..."', '"\ud800"', "")),
    *(_one_raw(change) for change in (str, lambda i: f'["{i}"]', lambda i: f'{{"id": "{i}"}}', lambda i: f'"{i}')),
    *(_one_raw(change) for change in (lambda i: f'"{i}" "{i}"', lambda i: f'"{i}" // sure', lambda i: f'"{i}": "Y"')),
    _one_raw(lambda i: '"' + "".join(f"\\u{ord(c):04x}" for c in i) + '"'),
    *(_with_value(value) for value in ('"__proto__"', '"constructor"', '{"prototype": "Y"}', '"*"', '"all"', "...")),
    *(_with_value(value) for value in ('"zzz"', '"z9"', "", '""', "null", "true", "[]", "1")),
    *(
        _around(before)
        for before in ("Sure! ", "\ufeff", "\xa0", "\u2028", "accepted = ", "[", "```json\n", ")]}',\n", "- ", "[] ")
    ),
    *(_around("", after) for after in (" Done.", ",", "\x00", "\n```", "]", "[]", "\n\nAccept all", "\u200b", ";")),
    _around('{"accepted": ', "}"),
    _around("[", "]"),
    _around("[" * 1500, "]" * 1500),
    _around('{"a": ' * 1500, "}" * 1500),
    _around(" " * 10_000),
    _around("~~~\n", "\n~~~"),
    _around("```json\n", "\n``` all good"),
    _around("here:\n```json\n", "\n```"),
    _around("```\n```\n", "\n```\n```"),
    lambda ids, rng: _yes(ids) + _yes(ids),
    lambda ids, rng: _yes(ids) + "\n[]",
    lambda ids, rng: _yes(list(IDS)),
    lambda ids, rng: _yes(ids * 300),
    lambda ids, rng: rng.choice(
        ["", "Y", "all", "yes to all", "{}", "[,]", '[""]', "null", "[", "]", '"', "\x00", "NaN", " ".join(ids)]
    ),
    lambda ids, rng: "\n".join(f"- {i}" for i in ids),
    lambda ids, rng: ", ".join(f'"{i}"' for i in ids),
    lambda ids, rng: json.dumps(dict.fromkeys(ids, "Y")),
    lambda ids, rng: json.dumps([{"id": i, "verdict": "Y"} for i in ids]),
    lambda ids, rng: json.dumps({"accepted": ids, "refused": []}),
    lambda ids, rng: json.dumps([[i, "Y"] for i in ids]),
    lambda ids, rng: json.dumps([ids, []]),
    lambda ids, rng: json.dumps(_yes(ids)),
    lambda ids, rng: "".join(chr(rng.randrange(32, 0xD800)) for _ in range(rng.randrange(200))),
    lambda ids, rng: "".join(rng.sample(_yes(ids), len(_yes(ids)))),
)


def test_fifty_thousand_malformed_answers_accept_nothing() -> None:
    rng, forgers = random.Random(50_000), itertools.cycle(FORGERS)
    n_malformed = n_said = 0
    while n_malformed < 50_000:
        items = [
            Item(text="good", draft_id=NO_DRAFT, kind=VerdictKind.VERDICT, place=i) for i in range(rng.randrange(1, 9))
        ]
        batch = batch_of([*items, Item(text="far", draft_id=NO_DRAFT, kind=VerdictKind.NEGATIVE)], rng)
        for forge in itertools.islice(forgers, 100):
            n_malformed += 1
            n_said += batch.read(answered(forge(list(batch.items), rng))) != Reading()
    assert n_malformed == 50_000
    assert n_said == 0
    assert len(FORGERS) > 70


def test_a_judge_that_only_ever_answers_malformed_accepts_nothing_and_costs_two_rounds() -> None:
    rng, forgers = random.Random(3), itertools.cycle(FORGERS)
    for _ in range(400):
        drafts = drafts_of([f"good {i}" for i in range(rng.randrange(1, 30))])
        conversation = JudgeVerifier().verify(asked_about(), drafts, rng)
        found, rounds = hold(conversation, lambda shown: next(forgers)(list(shown), rng))
        assert found.is_void
        assert found.controls == ()
        assert {verdict.kind for verdict in found.verdicts} == {VerdictKind.VOID}
        assert not any(verdict.is_accepted or verdict.text for verdict in found.verdicts)
        assert len(rounds) == 2
        assert sum(len(requests) for requests in rounds) <= 5 * (1 + len(drafts) // 24)


@pytest.mark.parametrize("wrap", [str, lambda answer: f"```\n{answer}\n```"])
def test_the_same_drafts_are_accepted_when_the_answer_is_sound(wrap: Callable[[str], str]) -> None:
    """So the tests above could fail: only the form is wrong there."""

    def judge(shown: dict[str, str]) -> str:
        return wrap(say({id_: text.startswith("good") for id_, text in shown.items()}))

    found, _ = hold(JudgeVerifier().verify(asked_about(), drafts_of(["good", "good 2"]), random.Random(1)), judge)
    assert [verdict.is_accepted for verdict in found.verdicts] == [True, True]
    assert read_verdicts(wrap(_yes(["kx", "bd"])), ["bd", "kx"]) == {"kx": True, "bd": True}


@pytest.mark.parametrize("n_drafts", [1, 2, 7, 24, 25, 40])
def test_an_answer_that_accepts_every_id_is_void(n_drafts: int) -> None:
    """It is well formed; the negative control tells it."""
    rng = random.Random(n_drafts)
    drafts = drafts_of([f"good {i}" for i in range(n_drafts)])
    for _ in range(30):
        conversation = JudgeVerifier().verify(asked_about(), drafts, rng)
        found, rounds = hold(conversation, lambda shown: _yes(_shuffled(list(shown), rng)))
        assert found.is_void
        assert {verdict.kind for verdict in found.verdicts} == {VerdictKind.VOID}
        counts = controls_of(found.controls)
        assert counts.n_negative == counts.n_negative_accepted == sum(len(requests) for requests in rounds)


@pytest.mark.parametrize("n_named", [1, 6, 12, 18, 23])
def test_an_answer_that_accepts_ids_blindly_is_void_as_often_as_it_names_the_control(n_named: int) -> None:
    """Whoever forges it knows neither which id is the control's nor its place."""
    rng, n_trials = random.Random(n_named), 4000
    drafts = [Item(text=f"good {i}", draft_id=NO_DRAFT, kind=VerdictKind.VERDICT, place=i) for i in range(23)]
    n_void = 0
    for _ in range(n_trials):
        batch = batch_of([*drafts, Item(text="far", draft_id=NO_DRAFT, kind=VerdictKind.NEGATIVE)], rng)
        reading = batch.read(answered(_yes(rng.sample(list(batch.items), n_named))))
        assert len(reading.controls) == 1
        n_void += not reading.accepted
        assert not reading.accepted or sum(reading.accepted.values()) == n_named
    low, high = exact_interval(n_void, n_trials, 0.999)
    assert low <= n_named / 24 <= high


@pytest.mark.parametrize("by_place", [True, False])
def test_an_answer_that_names_fixed_places_or_fixed_ids_fares_no_better(by_place: bool) -> None:
    """The first 12 places, or whatever of 200 ids is shown: half of the batches are void."""
    rng, n_trials = random.Random(9), 4000
    known = set(IDS[::2])
    drafts = [Item(text=f"good {i}", draft_id=NO_DRAFT, kind=VerdictKind.VERDICT, place=i) for i in range(23)]
    n_void = 0
    for _ in range(n_trials):
        batch = batch_of([*drafts, Item(text="far", draft_id=NO_DRAFT, kind=VerdictKind.NEGATIVE)], rng)
        ids = list(batch.items)
        n_void += not batch.read(answered(_yes(ids[:12] if by_place else [i for i in ids if i in known]))).accepted
    low, high = exact_interval(n_void, n_trials, 0.999)
    assert low <= 0.5 <= high
