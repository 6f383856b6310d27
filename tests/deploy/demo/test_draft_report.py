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
OWN: dict[str, Any] = {
    "summary": "Net saving $0.0005, 45.0 % of what synthesis would have cost",
    "accepted": "9 of 10 accepted, 90.0 % (55.5 to 99.7)",
    "net_share_ppm": 450_000,
    "acceptance": RATE,
    "teacher_ms_saved": 2_340,
}


def pair(**changes: Any) -> Pair:
    values: dict[str, Any] = {
        "first_steps": steps(0, 1_500, 0, 0, 99),
        "second": {"name": "desk", "drafts": OWN},
        "second_steps": SECOND,
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


def test_the_apis_own_words_are_shown_with_the_length_and_the_time() -> None:
    text = draft_report.of_pair(pair()).plain
    assert all(part in text for part in ("62 tokens", OWN["summary"], OWN["accepted"], "2.34 s less"))
    untimed = pair(second={"name": "desk", "drafts": OWN | {"teacher_ms_saved": None}})
    assert "teacher's time" not in draft_report.of_pair(untimed).plain


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


def test_the_comparison_has_a_row_a_task() -> None:
    shown = printed(draft_report.comparison([pair(), pair(mean_tokens=12.2)]))
    assert all(part in shown for part in ("62", "12", "$0.0015", "$0.0006", "9/10", "45.0 %", "6.00 s"))
