"""What drafts saved, as the demos show it: the API's own figure, or its slices' where it has none; some texts."""

import io
from typing import Any

from rich.console import Console

from deploy.demo import draft_report
from deploy.demo.draft_report import Pair

NAMES = ("slicing", "synthesis", "verification", "selection", "labeling")


def steps(*spent: int) -> list[dict[str, Any]]:
    """One a second and a half long after another."""
    at = [f"2026-11-27T22:00:{1.5 * i:06.3f}Z" for i in range(len(NAMES) + 1)]
    return [
        {"name": name, "position": i, "spent_microusd": spent[i], "started_at": at[i], "ended_at": at[i + 1]}
        for i, name in enumerate(NAMES)
    ]


SECOND = steps(0, 580, 0, 20, 99)  # the picks are what is verified
RATE: dict[str, Any] = {"k": 9, "n": 10, "rate_ppm": 900_000, "low_ppm": 554_984, "high_ppm": 997_471}
NO_RATE: dict[str, Any] = {"k": 0, "n": 0, "rate_ppm": None, "low_ppm": None, "high_ppm": None}
OWN: dict[str, Any] = {
    "net_microusd": 450,
    "net_share_ppm": 450_000,
    "without_drafts_microusd": 1_000,
    "acceptance": RATE,
    "teacher_ms_saved": 2_340,
}
NONE_OFFERED: dict[str, Any] = {"arm": "not_worth", "strategy": "judge", "offered": 0, "accepted": 0}
SLICES: list[dict[str, Any]] = [
    {
        "name": "one",
        "drafts": {
            "arm": "offered",
            "strategy": "judge",
            "offered": 10,
            "accepted": 9,
            "saving": {"net_microusd": 420},
        },
    },
    {"name": "two", "drafts": NONE_OFFERED | {"saving": {"net_microusd": -20}}},
    {"name": "unfinished", "drafts": NONE_OFFERED | {"saving": None}},
    {"name": "captured", "drafts": None},
]


def pair(**changes: Any) -> Pair:
    values: dict[str, Any] = {
        "first": {"name": "desk"},
        "first_steps": steps(0, 1_500, 0, 0, 99),
        "second": {"name": "desk", "drafts": OWN},
        "second_steps": SECOND,
        "slices": SLICES,
        "stats": {"lookups": {"acceptance": NO_RATE}},
        "asked": [],
        "mean_tokens": 61.7,
    }
    return Pair(**values | changes)


def asked(name: str, **texts: list[str | None]) -> dict[str, Any]:
    rows = [{"verdict": verdict, "text": text} for verdict, written in texts.items() for text in written]
    return {"slice": name, "drafts": rows}


def printed(what: object) -> str:
    out = io.StringIO()
    Console(width=120, file=out).print(what)
    return out.getvalue()


def test_a_compiles_own_figure_is_shown_as_it_is() -> None:
    text = draft_report.of_pair(pair()).plain
    assert "62 tokens" in text
    assert "9 of 10, 90.0% [55.5, 99.7] at 95 %" in text
    assert "$0.000450, 45.0 % of $0.0010 without drafts" in text
    assert "2.3 s less" in text


def test_an_api_without_that_figure_has_its_slices_summed_and_the_familys_acceptance() -> None:
    text = draft_report.of_pair(pair(second={"name": "desk"}, stats={"lookups": {"acceptance": RATE}})).plain
    assert "9 of 10" in text
    assert "$0.000400, 40.0 % of $0.0010 without drafts" in text
    assert "teacher's time" not in text


def test_where_nobody_was_asked_there_is_no_rate() -> None:
    own = OWN | {"acceptance": NO_RATE, "net_microusd": -7, "net_share_ppm": None, "teacher_ms_saved": None}
    text = draft_report.of_pair(pair(second={"name": "desk", "drafts": own})).plain
    assert "asked about no draft" in text
    assert "net saving     -$0.000007\n" in text


def test_three_kept_and_three_refused_texts_stand_side_by_side_one_a_slice_first() -> None:
    slices = [
        asked("one", accepted=["kept one", "kept two"], refused=["refused one"], void=["void"]),
        asked("two", accepted=[None, "kept three"], refused=["refused two", "refused three", "refused four"]),
    ]
    shown = printed(draft_report.side_by_side(slices))
    lines = [line.strip().split("  ") for line in shown.splitlines() if "one: " in line or "two: " in line]
    assert [row[0].strip() for row in lines] == ["one: kept one", "two: kept three", "one: kept two"]
    assert all(f"refused {word}" in shown for word in ("one", "two", "three"))
    assert "refused four" not in shown
    assert "void" not in shown


def test_an_api_that_lists_no_drafts_is_said_to() -> None:
    assert "no texts to show" in printed(draft_report.side_by_side(None))


def test_the_comparison_has_a_row_a_task() -> None:
    shown = printed(draft_report.comparison([pair(), pair(mean_tokens=12.2)]))
    assert all(part in shown for part in ("62", "12", "$0.0015", "$0.0006", "9/10", "45.0 %", "6.0 s / 6.0 s"))


def test_the_demos_summary_counts_offers_and_shows_the_same_saving() -> None:
    summary = draft_report.summary({"drafts": OWN}, SLICES, SECOND).plain
    assert "90.0% of 10 drafts accepted" in summary
    assert "$0.000450, 45.0 % of" in summary
    assert all(how in summary for how in ("judge: the teacher", "not worth: asking"))
    assert "repeat" not in summary
    assert "no draft was worth offering" in draft_report.summary({}, SLICES[1:], SECOND).plain
