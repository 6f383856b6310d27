"""`kolm drafts` and `kolm compile --estimate`: what they ask, what they print, and the exit codes that scripts rely
on."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_runners.cli.main import main
from tests.gpu_runners.cli.api.small_drafts import (
    DraftsApi,
    draft,
    drafts_api,
    family,
    lookups,
    other_label,
    previewed,
    rate,
    saving,
    slice_drafts,
    strategy,
    verdict,
)

ROOT = Path(__file__).parents[4]
SPEC = str(ROOT / "examples" / "refund-router.yaml")
SCHEMAS = json.loads((ROOT / "docs" / "openapi.json").read_text())["components"]["schemas"]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[DraftsApi]:
    with drafts_api() as api:
        monkeypatch.setenv("KOLM_API_URL", api.url)
        monkeypatch.setenv("KOLM_API_KEY", "kolm_sk_test")
        yield api


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed, line by line, runs of spaces as one."""
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (family(), "DraftStatsShape"),
        (saving(), "DraftSavingsShape"),
        (saving()["labels"], "SavingsPartShape"),
        (slice_drafts(), "SliceDraftsShape"),
        (slice_drafts()["drafts"][0], "AskedDraftShape"),
        (lookups(), "LookupsShape"),
        (strategy(), "StrategyShape"),
        (draft(0), "DraftShape"),
        (verdict(), "VerdictShape"),
        (previewed(), "PreviewShape"),
        (previewed()["slices"][0], "PreviewSliceShape"),
        (previewed()["total"], "PreviewTotalShape"),
    ],
)
def test_the_small_api_answers_in_the_shapes_of_the_real_one(value: dict[str, Any], name: str) -> None:
    assert set(value) == set(SCHEMAS[name]["properties"])


def test_stats_tell_what_is_kept_what_was_accepted_and_a_net_below_zero(
    api: DraftsApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drafts", "stats"]) == 0
    lines = told(capsys)
    assert lines[0] == "family router"
    assert (
        lines[1] == "1,234 drafts of 14 slices, and 45 picked ones for exact rules; 2.5 MB, $0.0123 paid for the drafts"
    )
    assert lines[2:6] == [
        saving()["summary"],
        "accepted: 60 of 96, 62.5 % [53.5, 69.5]",
        "teacher's time saved: 12.3 s",
        "engine: 200 of 300 tokens came from drafts",
    ]
    assert lines[6] == "20 slices searched the cache: held back 1, not worth 7, offered 12"
    assert lines[7].startswith("slices: 55 drafts entered a pool; avoided $0.12, less $0.15 verification, $0.00002")
    assert lines[8] == "labels: 30 prompts were answered before; avoided $0.0006"
    assert "held back (n = 3): 36 candidates at $0.000012, mean score 0.500; not (n = 19)" in lines[9]
    assert lines[-1] == (
        "m@r1 judge 60 of 96, 62.5 % [53.5, 69.5] judged 2,400 -$0.031 2.5 % (at least 0.0 %), 40 audits"
    )
    assert api.requests == ["GET /v1/drafts/stats"]


def test_stats_of_several_families_end_with_all_of_them(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.families = [family("a"), family("b")]
    assert main(["drafts", "stats"]) == 0
    assert told(capsys)[-5:-3] == ["all families", "Net saving $1.00"]


def test_kept_and_refused_drafts_stand_side_by_side(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafts", "verdicts", "cmp_1", "--slice", "refund", "--limit", "4"]) == 0
    lines = told(capsys)
    assert lines[0] == "refund: 2 kept, 1 refused, 1 void, net saving -$0.000012"
    assert lines[1] == "expected kept expected refused"
    assert lines[2].startswith("75.0 % money back, please 75.0 % [red]where is it")
    assert "\x1b" not in lines[2]
    assert lines[3].startswith("75.0 % (deleted since) 75.0 % void: long long")
    assert lines[3].endswith("…")
    assert api.requests == ["GET /v1/compiles/cmp_1/drafts?limit=4&slice=refund"]
    assert main(["drafts", "verdicts", "cmp_1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"] == [slice_drafts()]


def test_a_compile_whose_teacher_was_not_asked_says_so(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.slices = []
    assert main(["drafts", "verdicts", "cmp_1"]) == 0
    assert told(capsys) == ["The teacher was asked about no draft of this compile."]


def test_stats_can_be_asked_of_one_family_since_a_time(api: DraftsApi) -> None:
    assert main(["drafts", "stats", "--family", "a b&c", "--since", "2026-11-01T00:00:00Z"]) == 0
    assert api.requests == ["GET /v1/drafts/stats?family=a+b%26c&since=2026-11-01T00%3A00%3A00Z"]


def test_stats_of_nothing_are_a_sentence(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.families = []
    assert main(["drafts", "stats"]) == 0
    assert "The draft cache is empty" in capsys.readouterr().out


def test_stats_of_a_family_that_nobody_looked_in_yet(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    never = lookups(n_lookups=0, arms={}, n_shown=0, n_accepted=0, acceptance=rate(0, 0))
    api.families = [family(lookups=never, labels={"n_reused": 0, "avoided_microusd": 0}, holdback=None, scopes=[])]
    assert main(["drafts", "stats"]) == 0
    assert told(capsys)[2:] == ["no slice has searched the draft cache yet"]


def test_a_suspended_strategy_is_told(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.families[0]["scopes"][0]["strategies"] = [strategy(is_suspended=True)]
    assert main(["drafts", "stats"]) == 0
    assert told(capsys)[-1].endswith("40 audits suspended")


def test_a_judge_that_the_teacher_stands_in_for_is_told_with_its_reason(
    api: DraftsApi, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "it refused 10 of 40 planted texts of other slices, and at least 80 % are asked for"
    part = strategy(strategy="delegate", judge="cheap@https://llm.example.com/v1", judge_refusal=reason)
    api.families[0]["scopes"][0]["strategies"] = [part]
    assert main(["drafts", "stats"]) == 0
    shown = " ".join(" ".join(told(capsys)).split())
    assert "delegate: cheap@https://llm.example.com/v1" in shown
    assert "the teacher judges in its place" in shown


def test_label_votes_are_named_beside_audits_as_what_was_measured(
    api: DraftsApi, capsys: pytest.CaptureFixture[str]
) -> None:
    votes = other_label(n=1200, n_other=30, n_fresh=700, n_fresh_other=14, estimate_ppm=5_000, high_ppm=30_000)
    bad = {"n_audited": 0, "rate_ppm": 5_000, "low_ppm": 1_000, "other_label": votes}
    api.families[0]["scopes"][0]["strategies"] = [strategy(bad_drafts=bad)]
    assert main(["drafts", "stats"]) == 0
    assert told(capsys)[-1].endswith("0.5 % (at least 0.1 %), labels of 1,200 picks")


def test_a_revision_that_is_a_digest_is_cut_short(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.families[0]["scopes"][0]["teacher"] = f"grammar/m@{'0a' * 32}|top_p=1"
    assert main(["drafts", "stats"]) == 0
    assert told(capsys)[-1].startswith("grammar/m@0a0a0a0a0a0a…|top_p=1 judge 60 of 96")


def test_a_break_even_above_one_is_never(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.preview["slices"][0]["break_even_ppm"] = 8_410_000
    assert main(["drafts", "preview", SPEC]) == 0
    assert " never " in told(capsys)[1]


def test_stats_as_json_are_the_answer_itself(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafts", "stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"] == [family()]


def test_the_list_is_a_table(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.drafts = [draft(0), draft(1, text=None), draft(2, text="long " * 30), draft(3, text="[red]a\x1b[31mb\nc[/red]")]
    assert main(["drafts", "list", "--family", "router", "--state", "live"]) == 0
    lines = told(capsys)
    assert lines[0] == "id family state tokens shown accepted text"
    assert lines[1] == "drf_0 router live kept 4 2 1 text 0"
    assert lines[2].endswith("(its key is gone)")
    assert lines[3].endswith("long…")
    assert lines[4].endswith("[red]a [31mb c[/red]")
    assert api.requests == ["GET /v1/drafts?limit=20&family=router&state=live"]


def test_a_search_that_was_cut_short_is_gone_on_with(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.drafts = [draft(n, text="match" if n % 4 == 0 else "other") for n in range(12)]
    api.page = 3
    assert main(["drafts", "list", "--search", "match", "--limit", "2", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["id"] for row in rows] == ["drf_0", "drf_4"]
    assert len(api.requests) == 2


def test_a_long_list_is_fetched_page_by_page_to_its_end(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.drafts = [draft(n) for n in range(7)]
    api.page = 3
    assert main(["drafts", "list", "--limit", "500", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7
    assert [request.partition("limit=")[2][:3] for request in api.requests] == ["100", "100", "100"]


def test_a_list_of_nothing_is_a_sentence(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.drafts = []
    assert main(["drafts", "list"]) == 0
    assert told(capsys) == ["No draft fits."]


def test_one_draft_is_shown_with_its_slice_and_its_verdicts(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafts", "show", "drf_1"]) == 0
    lines = told(capsys)
    assert {"id drf_1", "teacher m@r1", "cost $0.000002", "slice refunds", "text text 1"} <= set(lines)
    assert lines[-1] == "cmp_2 judge verdict accepted judged 0.125 75.0 % $0.000003"
    assert main(["drafts", "show", "drf_1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "drf_1"


def test_an_id_that_nothing_has_is_exit_code_one(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafts", "show", "../../etc"]) == 1
    assert main(["drafts", "delete", "drf_99"]) == 1
    assert capsys.readouterr().err.count("There is no such draft.") == 2
    assert api.requests == ["GET /v1/drafts/..%2F..%2Fetc", "DELETE /v1/drafts/drf_99"]


def test_a_preview_tells_each_slice_why_and_what_it_comes_to(
    api: DraftsApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drafts", "preview", SPEC]) == 0
    lines = told(capsys)
    assert lines[1] == "refund offered judge 0.125 9 6 4.1 [40.0, 80.0] 21.0 % -$0.0002"
    assert lines[2] == "other no drafts 0 0 0.0 $0"
    assert lines[3:5] == ["refund: These drafts pay.", "other: Nothing is near."]
    assert lines[5] == (
        "draft cache: expected to cost $0.0002 ($0.001 avoided less $0.0012 verification): 6 drafts shown in 1 of 2 "
        "slices, 4.1 accepted"
    )
    assert main(["drafts", "preview", SPEC, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == previewed()


def test_without_a_worker_a_preview_is_exit_code_one_and_is_not_asked_again(
    api: DraftsApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.has_no_worker = True
    assert main(["drafts", "preview", SPEC]) == 1
    assert "No worker answered." in capsys.readouterr().err
    assert len(api.requests) == 1


def test_a_spec_that_cannot_be_read_is_exit_code_one(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafts", "preview", "/nowhere.yaml"]) == 1
    assert "/nowhere.yaml cannot be read" in capsys.readouterr().err
    assert api.requests == []


def test_deleting_says_what_went_with_it(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafts", "delete", "drf_0"]) == 0
    assert main(["drafts", "delete", "drf_1"]) == 0
    assert told(capsys) == ["drf_0 is deleted, and 1 that began as it.", "drf_1 is deleted."]


def test_a_purge_asks_first_and_without_a_person_does_nothing(
    api: DraftsApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(["drafts", "purge", "--family", "router"]) == 1
    assert "pass --yes" in capsys.readouterr().err
    assert api.requests == []


def test_a_purge_that_was_agreed_to_says_what_is_gone(api: DraftsApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafts", "purge", "--family", "router", "--yes"]) == 0
    assert told(capsys) == [
        "router: 3 drafts of 2 slices and 5 label answers are deleted, and the key that their texts were sealed with."
    ]
    api.purged = dict.fromkeys(api.purged, 0)
    assert main(["drafts", "purge", "--family", "nobody", "--yes"]) == 0
    assert told(capsys) == ["Nothing was kept of the family 'nobody'."]


@pytest.mark.parametrize(
    "arguments",
    [[], ["purge"], ["list", "--limit", "0"], ["list", "--limit", "x"], ["list", "--state", "alive"], ["show"]],
)
def test_options_that_make_no_sense_are_exit_code_two(api: DraftsApi, arguments: list[str]) -> None:
    assert main(["drafts", *arguments]) == 2
    assert api.requests == []


def test_an_estimate_shows_every_step_and_what_the_drafts_would_save(
    api: DraftsApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", SPEC, "--estimate"]) == 0
    assert told(capsys) == [
        "synthesis $0.012 ($0.01 to $0.02)",
        "total $0.012 ($0.01 to $0.02)",
        "budget $5.00",
        "draft cache: expected to cost $0.0002 ($0.001 avoided less $0.0012 verification): 6 drafts shown in 1 of 2 "
        "slices, 4.1 accepted",
    ]
    assert api.requests == ["POST /v1/compiles/estimate?drafts=true"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expected_net_microusd": None, "reason": "No worker answered."}, "unknown. No worker answered."),
        ({"n_shown": 0, "reason": "None is kept."}, "nothing would be offered. None is kept."),
    ],
)
def test_an_estimate_without_drafts_says_why(
    api: DraftsApi, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: str
) -> None:
    api.saving |= changes
    api.within_budget = False
    assert main(["compile", SPEC, "--estimate"]) == 0
    lines = told(capsys)
    assert lines[-2:] == ["budget $5.00, which is not enough", f"draft cache: {words}"]
