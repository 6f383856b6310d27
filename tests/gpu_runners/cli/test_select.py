"""`kolm select`: what it keeps, what it writes, what it says of input that cannot be used."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.domain.selection.select import select
from gpu_runners.cli.main import main
from gpu_runners.selecting import progress
from gpu_runners.selecting import rows as select_rows

ROOT = Path(__file__).parents[3]
WORDS = ("card", "refund", "parcel", "password", "address")
TEXTS = [f"my {word} {what}" for word in WORDS for what in ("is lost", "was lost", "has not come", "was stolen")]

Write = Callable[[Sequence[Any]], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write rows (or raw lines) to in.jsonl of an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def _write(rows: Sequence[Any]) -> Path:
        path = tmp_path / "in.jsonl"
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        path.write_bytes(b"\n".join(lines) + b"\n")
        return path

    return _write


def vectors(n: int, *, width: int = 8, **fields: Sequence[Any]) -> list[dict[str, Any]]:
    """n rows with random embeddings, and more columns."""
    rng = np.random.default_rng(3)
    rows: list[dict[str, Any]] = [{"id": f"r{i}", "embedding": rng.normal(size=width).tolist()} for i in range(n)]
    for name, column in fields.items():
        for row, value in zip(rows, column, strict=True):
            row[name] = value
    return rows


def scored(n: int) -> list[dict[str, Any]]:
    return vectors(n, score=np.random.default_rng(4).random(n).round(3).tolist())


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_rows_that_select_keeps_are_printed_best_first(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    rows = scored(30)
    write(rows)
    assert main(["select", "in.jsonl", "--k", "8", "--method", "two_step", "--score-floor", "0.2"]) == 0
    kept = printed(capsys)
    embeddings, scores = [row["embedding"] for row in rows], [row["score"] for row in rows]
    digests = [hashlib.blake2b(np.array(e, "<f4").tobytes(), digest_size=16).hexdigest() for e in embeddings]
    keys = [f"{digest} {row['id']}" for digest, row in zip(digests, rows, strict=True)]
    picks = select(np.float32(embeddings), scores, keys, k=8, method="two_step", score_floor=0.2).picks
    assert [row["id"] for row in kept] == [f"r{i}" for i in picks]
    assert [row["selection"]["rank"] for row in kept] == list(range(1, 9))
    assert "embedding" not in kept[0]
    unit = np.array(embeddings) / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for row in kept:
        near = row["selection"]["nearest_pick"]
        own, other = int(row["id"][1:]), int(near["id"][1:])
        distances = {i: 1 - float(unit[own] @ unit[i]) for i in picks if i != own}
        assert near["distance"] == pytest.approx(min(distances.values()), abs=2e-6)
        assert distances[other] == pytest.approx(near["distance"], abs=2e-6)


def test_a_third_is_kept_by_default_and_the_log_goes_to_standard_error(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write(scored(31))
    assert main(["select", "in.jsonl"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 11
    assert err.startswith("slice in.jsonl\n  candidates: 31   K target: 11   kept: 11")
    assert "note: auto chose" in err


def test_texts_are_embedded_here_and_other_fields_go_through(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write([{"id": i, "text": text, "source": {"line": i}} for i, text in enumerate(TEXTS)])
    assert main(["select", "in.jsonl", "--k", "5", "--method", "k_center"]) == 0
    out, err = capsys.readouterr()
    kept = [json.loads(line) for line in out.splitlines()]
    assert {row["text"].split()[1] for row in kept} == set(WORDS)  # the five farthest apart
    assert [TEXTS[row["source"]["line"]] for row in kept] == [row["text"] for row in kept]
    assert "no row has a score" in err


def test_traffic_is_represented_and_the_log_says_so(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(scored(30))
    assert main(["select", "in.jsonl", "--traffic", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert report["method"] == "representative"
    assert report["method_reason"].startswith("The rows are traffic")
    assert main(["select", "in.jsonl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["method"] != "representative", "scores differ"


def test_the_order_of_the_lines_changes_nothing(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    rows = vectors(24, score=[0.5] * 12 + [0.7] * 12)
    rows[3]["embedding"] = rows[4]["embedding"]
    kept = []
    for order in (rows, rows[::-1], rows[7:] + rows[:7]):
        write(order)
        assert main(["select", "in.jsonl", "--method", "diverse"]) == 0
        kept.append([row["id"] for row in printed(capsys)])
    assert kept[0] == kept[1] == kept[2]


def test_plain_lines_are_texts_with_their_numbers_as_ids(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write([b"\xef\xbb\xbfmy card is lost", b"", b"my parcel has not come\r", b"my card was lost"])
    assert main(["select", "in.jsonl", "--text-lines", "--k", "2", "--method", "k_center"]) == 0
    kept = {row["id"]: row["text"] for row in printed(capsys)}
    assert kept.pop("3") == "my parcel has not come"
    assert set(kept) <= {"1", "4"}


def test_embeddings_of_a_file_go_with_the_lines(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    rows = scored(30)
    write(rows)
    assert main(["select", "in.jsonl", "--method", "dpp"]) == 0
    inline = [row["id"] for row in printed(capsys)]
    np.save("e.npy", np.array([row.pop("embedding") for row in rows]))
    write(rows)
    assert main(["select", "in.jsonl", "--method", "dpp", "--embeddings", "e.npy"]) == 0
    assert [row["id"] for row in printed(capsys)] == inline


def test_every_row_is_in_one_of_the_two_files_and_says_why(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(scored(30))
    arguments = ["--method", "two_step", "--out", "kept.jsonl", "--dropped", "dropped.jsonl", "--report", "report.json"]
    assert main(["select", "in.jsonl", *arguments]) == 0
    assert capsys.readouterr().out == ""
    kept, dropped = (
        [json.loads(line) for line in Path(f"{n}.jsonl").read_text().splitlines()] for n in ("kept", "dropped")
    )
    assert sorted(row["id"] for row in kept + dropped) == sorted(f"r{i}" for i in range(30))
    report = json.loads(Path("report.json").read_text())
    below = {f"r{i}" for i in report["floor_dropped"]}
    assert below
    by_cluster = {row["selection"]["cluster"]: row["id"] for row in kept}
    for row in dropped:
        about = row["selection"]
        if row["id"] in below:
            assert (about["why"], about["cluster"], about["cluster_pick"]) == ("below_score_floor", None, None)
        else:
            assert about["why"] == "outscored_in_its_cluster"
            assert about["cluster_pick"] == by_cluster[about["cluster"]]
    assert report["k_actual"] == report["k_asked"] == 10


def test_what_select_wrote_can_be_selected_from_again(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write([{"id": str(i), "text": text, "score": i} for i, text in enumerate(TEXTS)])
    assert main(["select", "in.jsonl", "--out", "once.jsonl", "--k", "10"]) == 0
    capsys.readouterr()
    assert main(["select", "once.jsonl", "--k", "4"]) == 0
    assert [row["selection"]["rank"] for row in printed(capsys)] == [1, 2, 3, 4]


def test_labels_share_out_k_unless_told_not_to(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(vectors(30, score=[float(i) for i in range(30)], label=[0] * 24 + ["b"] * 6))
    assert main(["select", "in.jsonl", "--k", "10", "--method", "top_k"]) == 0
    assert [row["label"] for row in printed(capsys)].count("b") == 2
    assert main(["select", "in.jsonl", "--k", "10", "--method", "top_k", "--no-stratify"]) == 0
    assert [row["label"] for row in printed(capsys)].count("b") == 6


def test_drop_k_keeps_one_of_each_group_of_near_duplicates(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    rows = vectors(4)
    rows = [{"id": f"{row['id']}-{i}", "embedding": row["embedding"], "score": i} for row in rows for i in range(5)]
    write(rows)
    assert (
        main(["select", "in.jsonl", "--k", "9", "--method", "two_step", "--score-floor", "0", "--drop-k", "--json"])
        == 0
    )
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert {name.split("-")[0] for name in result["picks"]} == {"r0", "r1", "r2", "r3"}
    assert (result["report"]["k_asked"], result["report"]["k_actual"]) == (9, 4)
    assert "K was dropped from 9 to 4" in err


def test_an_explanation_names_score_floor_cluster_winner_distance_and_twins(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        [
            {"id": "best", "embedding": [1, 0, 0], "score": 0.9},
            {"id": "twin", "embedding": [1, 0, 0], "score": 0.8},
            {"id": "near", "embedding": [1, 0.2, 0], "score": 0.7},
            {"id": "far", "embedding": [0, 1, 0], "score": 0.6},
            {"id": "poor", "embedding": [0, 0, 1], "score": 0.1},
            {"id": "poorer", "embedding": [0, 1, 1], "score": 0.0},
        ]
    )
    arguments = ["--k", "2", "--method", "two_step"]
    names = [word for name in ("best", "twin", "far", "poor") for word in ("--explain", name)]
    assert main(["select", "in.jsonl", *arguments, *names]) == 0
    best, twin, far, poor = capsys.readouterr().out.strip().replace("\n  ", " ").splitlines()
    assert best.startswith("best was kept, as number 1 of 2, by two_step. Its score, 0.9, is number 1 of 6.")
    assert "with 2 other rows, and is the one that was kept from it." in best
    assert "The nearest other pick is far at cosine distance 1.000." in best
    assert twin.startswith("twin was dropped, by two_step. Its score, 0.8, is number 2 of 6.")
    assert "above the score floor, under which the worst 33 % were set aside (2 rows)" in twin
    assert "kept from it: best (score 0.9)." in twin
    assert "The nearest pick is best at cosine distance 0.000, its twin." in twin
    assert "two_step keeps the best-scored row of each cluster: best has 0.9." in twin
    assert "Its twin: best (score 0.9). 1 more row within 0.2." in twin
    assert "It is alone in cluster" in far
    assert "It is below the score floor: the worst 33 %" in poor


def test_what_auto_set_aside_is_explained_by_the_labels_of_similar_rows(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(8)
    middles = np.eye(3, 8)
    rows = [
        {"id": f"r{i}", "embedding": (middles[i % 3] + rng.normal(size=8) * 0.1).tolist(), "score": 0.5, "label": i % 3}
        for i in range(60)
    ]
    for row in rows[:9]:
        row["label"] = (row["label"] + 1) % 3
    write(rows)
    assert main(["select", "in.jsonl", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    aside = [f"r{i}" for i in report["floor_dropped"]]
    assert aside
    assert main(["select", "in.jsonl", "--explain", aside[0]]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"It is one of the {len(aside)} rows that auto set aside first" in out
    assert "are contradicted by the rest of the pool" in out


@pytest.mark.parametrize(
    "method", ["top_k", "diverse", "dpp", "facility_location", "k_center", "representative", "random"]
)
def test_every_method_has_a_sentence_for_a_row_that_it_passed_over(
    write: Write, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    write(scored(30))
    arguments = ["--method", method, "--score-floor", "0", "--json"]
    assert main(["select", "in.jsonl", *arguments]) == 0
    picks = json.loads(capsys.readouterr().out)["picks"]
    dropped = next(f"r{i}" for i in range(30) if f"r{i}" not in picks)
    assert main(["select", "in.jsonl", *arguments, "--explain", dropped]) == 0
    explanation = json.loads(capsys.readouterr().out)["explanations"][dropped]
    assert f"was dropped, by {method}." in explanation[0]
    assert any(sentence.startswith(f"{method} ") for sentence in explanation)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "has no rows"),
        ([b"", b"  "], "has no rows"),
        ([b'{"id": "a", "text": "x"}', b"{broken"], "line 2: it is not JSON (Expecting property name"),
        ([b'{"id": "a", "text": "x"}', b"", b"[1, 2]"], "line 3: it is not an object"),
        ([b'{"id": "a", "text": "x\xff"}'], "line 1: it is not UTF-8"),
        ([b"[" * 200_000], "line 1: it is not usable JSON"),
        ([{"text": "x"}], 'line 1: it has no "id"'),
        ([{"id": True, "text": "x"}], 'line 1: its "id" is neither'),
        ([{"id": "a"}], 'line 1: it has neither "text" nor "embedding"'),
        ([{"id": "a", "text": "x", "embedding": [1]}], 'line 1: it has both "text" and "embedding"'),
        ([{"id": "a", "text": "  "}], "line 1: its text is empty"),
        ([{"id": "a", "text": 3}], 'line 1: its "text" is not text'),
        ([{"id": "a", "embedding": []}], 'line 1: its "embedding" is not a list of numbers'),
        ([{"id": "a", "embedding": [1, "2"]}], "line 1: its embedding[1] is not a number"),
        ([{"id": "a", "embedding": [1, True]}], "line 1: its embedding[1] is not a number"),
        ([b'{"id": "a", "embedding": [1, NaN]}'], "line 1: it has a number that is not finite (NaN)"),
        ([b'{"id": "a", "embedding": [1, 1e999]}'], "line 1: its embedding[1] is not finite"),
        ([b'{"id": "a", "embedding": [1' + b"0" * 400 + b"]}"], "line 1: its \"embedding\" has a number that is not"),
        ([{"id": "a", "embedding": [1, 2]}, {"id": "b", "embedding": [1]}], "line 2: its embedding has 1 numbers"),
        ([{"id": "a", "text": "x"}, {"id": "b", "embedding": [1]}], 'line 2: it has no "text", line 1 has one'),
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "line 2: its id 'a' is that of line 1 too"),
        ([{"id": 1, "text": "x"}, {"id": "1", "text": "y"}], "line 2: its id '1' is that of line 1 too"),
        ([{"id": "a", "text": "x", "score": 1}, {"id": "b", "text": "y"}], 'line 2: it has no "score", line 1 has one'),
        ([{"id": "a", "text": "x"}, {"id": "b", "text": "y", "label": 1}], 'line 2: it has a "label", line 1 has none'),
        ([{"id": "a", "text": "x", "score": "0.9"}], 'line 1: its "score" is not a number'),
        ([b'{"id": "a", "text": "x", "score": Infinity}'], "not finite (Infinity)"),
        ([{"id": "a", "text": "x", "label": 0.5}], 'line 1: its "label" is neither'),
        ([{"id": "a", "text": "x", "scores": 1}], 'line 1: it has a field "scores"; did you mean "score"?'),
        ([b'{"id": "a", "text": "x", "score": 1, "score": 2}'], 'line 1: it has the field "score" twice'),
        ([{"id": "a", "text": "x", "vector": [1]}], 'did you mean "embedding"?'),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_used_is_named_with_what_is_wrong(
    write: Write, capsys: pytest.CaptureFixture[str], lines: Sequence[Any], said: str
) -> None:
    write(lines)
    assert main(["select", "in.jsonl"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kolm: in.jsonl")
    assert said in err


def test_several_broken_lines_are_told_at_once_up_to_a_limit(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write([{"id": "a", "text": "x"}, b"{", {"id": "b"}, {"id": "c", "text": "y"}])
    assert main(["select", "in.jsonl"]) == 2
    err = capsys.readouterr().err
    assert "line 2: it is not JSON" in err
    assert "line 3: it has neither" in err
    write([b"{"] * 5_000)
    assert main(["select", "in.jsonl"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == select_rows.MAX_PROBLEMS + 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--k", "-1"], "whole number of 0 or more, not '-1'"),
        (["--k", "2.5"], "whole number of 0 or more, not '2.5'"),
        (["--lambda", "nan"], "diversity_lambda must be 0 or more, not nan"),
        (["--lambda", "-1"], "diversity_lambda must be 0 or more"),
        (["--lambda", "much"], "it is a number, not 'much'"),
        (["--method", "best"], "There is no selection method 'best'; choose auto, two_step"),
        (["--linkage", "single"], "There is no linkage 'single'"),
        (["--score-floor", "1"], "score_floor is the share to drop"),
        (["--min-distance", "nan"], "min_distance is a cosine distance"),
        (["--overcluster", "9"], "overcluster is clusters per pick"),
        (["--map", "map.png"], "--map writes SVG alone: name a file that ends in .svg, not 'map.png'"),
        (["--out", "in.jsonl"], "in.jsonl is named twice"),
        (["--out", "x.jsonl", "--dropped", "./x.jsonl"], "x.jsonl is named twice"),
        (["--report", "no/such/folder/r.json"], "cannot be written"),
        (["--map", "folder.svg"], "cannot be written"),
        (["--explain", "r99"], "--explain r99: there is no row with this id"),
        (["--embeddings", "e.npy", "--out", "e.npy"], "named twice"),
        (["--embeddings", "missing.npy", "--text-lines"], "leave --embeddings out"),
    ],
)
def test_a_bad_option_is_exit_code_two_before_anything_is_read(
    write: Write, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    write(scored(6))
    Path("folder.svg").mkdir()
    assert main(["select", "in.jsonl", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.ones((5, 3)), "has 5 rows and the input 6"),
        (np.ones(6), "is not a table of numbers"),
        (np.array([["a"] * 3] * 6), "is not a table of numbers"),
        (np.array([[{}]] * 6, dtype=object), "cannot be read as a .npy file"),
        (np.array([[1.0, 2.0]] * 5 + [[1.0, np.nan]]), "row 6 has a number that is not finite"),
    ],
)
def test_a_npy_file_that_does_not_fit_is_named(
    write: Write, capsys: pytest.CaptureFixture[str], values: Any, said: str
) -> None:
    write([{"id": str(i)} for i in range(6)])
    np.save("e.npy", values, allow_pickle=True)
    assert main(["select", "in.jsonl", "--embeddings", "e.npy"]) == 2
    assert said in capsys.readouterr().err
    write([{"id": str(i), "embedding": [1]} for i in range(6)])
    assert main(["select", "in.jsonl", "--embeddings", "e.npy"]) == 2
    assert "--embeddings gives one too" in capsys.readouterr().err


def test_ten_gigabytes_are_refused_from_the_size_alone(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write([])
    os.truncate(path, 10 * 10**9)  # sparse: no disk is used, and reading it would take minutes
    assert main(["select", "in.jsonl"]) == 2
    assert "has 10,000,000,000 bytes; at most 2,000,000,000 are read" in capsys.readouterr().err


def test_a_pipe_is_counted(write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(select_rows, "MAX_BYTES", 1_000)
    path = write([{"id": str(i), "text": "x" * 50} for i in range(100)])
    read, end = os.pipe()
    os.write(end, path.read_bytes())
    os.close(end)
    assert main(["select", f"/dev/fd/{read}"]) == 2
    os.close(read)
    assert "has more than 1,000 bytes (line 14)" in capsys.readouterr().err


def test_more_rows_than_the_limit_are_refused_at_the_first_one_too_many(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert select_rows.MAX_ROWS == 100_000
    monkeypatch.setattr(select_rows, "MAX_ROWS", 20)
    write([{"id": str(i), "text": "x"} for i in range(30)])
    assert main(["select", "in.jsonl"]) == 2
    assert "has more than 20 rows (line 21)" in capsys.readouterr().err


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write([])
    path.write_bytes(b"")
    os.truncate(path, 50_000_000)
    assert main(["select", "in.jsonl"]) == 2
    assert "line 1: it has more than 4,000,000 bytes" in capsys.readouterr().err


def test_a_missing_file_and_a_folder_are_exit_code_two(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write([])
    Path("folder").mkdir()
    assert [main(["select", name]) for name in ("missing.jsonl", "folder")] == [2, 2]
    assert "missing.jsonl cannot be read: No such file" in capsys.readouterr().err


def test_hostile_texts_and_halves_of_surrogate_pairs_come_out_as_json(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["</title><script>alert(1)</script>", "half \ud83d", "\x00\x1b[31m", "line\nbreak\u2028"]
    write([{"id": f"{i}\n", "text": text, "rest": text} for i, text in enumerate(texts)])
    assert main(["select", "in.jsonl", "--k", "4", "--map", "m.svg", "--out", "k.jsonl"]) == 0
    rows = {row["id"]: row for row in map(json.loads, Path("k.jsonl").read_text().splitlines())}
    assert [rows[f"{i}\n"]["text"] for i in range(4)] == texts
    assert [rows[f"{i}\n"]["rest"] for i in range(4)] == texts


def test_an_id_cannot_steer_the_terminal(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write([{"id": "\x1b]0;owned\x07", "embedding": [1, 0]}, {"id": "\x1b[2J", "embedding": [0, 0]}])
    assert main(["select", "in.jsonl", "--k", "1", "--explain", "\x1b]0;owned\x07"]) == 0
    assert main(["select", "in.jsonl"]) == 0
    write([{"\x1b[2Jscores": 1, "id": "a"}] * 2)
    assert main(["select", "in.jsonl"]) == 2
    out, err = capsys.readouterr()
    assert "owned" in out
    assert "\x1b" not in out + err


def test_embeddings_that_float32_cannot_hold_keep_their_direction(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        [
            {"id": "huge", "embedding": [1e200, 1e200]},
            {"id": "tiny", "embedding": [1e-200, 1e-200]},
            {"id": "zero", "embedding": [0, 0]},
            {"id": "other", "embedding": [1, -1]},
        ]
    )
    assert main(["select", "in.jsonl", "--k", "4", "--json", "--explain", "huge"]) == 0
    out, err = capsys.readouterr()
    assert any("Its twin: tiny" in sentence for sentence in json.loads(out)["explanations"]["huge"])
    assert "1 rows have an embedding of length 0 (distance 1 to all): zero" in err


def test_rows_go_through_a_link_or_into_a_device(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(scored(12))
    Path("there.jsonl").write_text("old")
    Path("link.jsonl").symlink_to("there.jsonl")
    assert main(["select", "in.jsonl", "--k", "3", "--out", "link.jsonl", "--dropped", "/dev/null"]) == 0
    assert Path("link.jsonl").is_symlink()
    assert len(Path("there.jsonl").read_text().splitlines()) == 3


def test_a_field_is_a_misspelling_only_where_the_right_one_is_missing(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write([{"id": str(i), "text": text, "content": "more", "score": i, "scores": [i]} for i, text in enumerate(TEXTS)])
    assert main(["select", "in.jsonl", "--k", "2"]) == 0
    assert all(row["content"] == "more" for row in printed(capsys))


def test_standard_input_to_standard_output_in_a_process_of_its_own(write: Write) -> None:
    path = write(scored(12))
    command = [sys.executable, "-m", "gpu_runners.cli", "select", "-", "--k", "3", "--method", "top_k"]
    done = subprocess.run(command, input=path.read_bytes(), capture_output=True, check=True, cwd=ROOT)
    best = sorted(map(json.loads, path.read_text().splitlines()), key=lambda r: -r["score"])
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [row["id"] for row in best[:3]]
    assert done.stderr.decode().startswith("slice standard input\n")


def test_embeddings_of_ones_own_need_no_model_library(write: Write) -> None:
    path = write(scored(12))
    script = (
        "import sys\n"
        "from gpu_runners.cli.main import main\n"
        f"code = main(['select', {str(path)!r}, '--out', '/dev/null'])\n"
        "print(code, sorted({'torch', 'transformers', 'tokenizers', 'safetensors', 'httpx'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "0 []\n"


def test_a_short_run_is_quiet_and_a_long_one_says_where_it_is(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write([{"id": str(i), "text": text} for i, text in enumerate(TEXTS)])
    monkeypatch.setattr(progress, "QUIET_S", 600.0)  # three seconds are not enough on a busy machine
    assert main(["select", "in.jsonl", "--out", "k.jsonl"]) == 0
    assert "embedding 20 of 20" not in capsys.readouterr().err
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    assert main(["select", "in.jsonl", "--out", "k.jsonl"]) == 0
    assert "embedding 20 of 20\n" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_terminal_gets_a_bar_that_moves(write: Write) -> None:
    import pty

    path = write([{"id": f"{i}{text}", "text": f"{text} {i}"} for i in range(4) for text in TEXTS])
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "gpu_runners.cli", "select", str(path), "--out", "/dev/null"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=follower, cwd=ROOT, env=environment) as process:
        os.close(follower)
        shown = b"".join(_read_to_end(leader))
        assert process.wait() == 0
    os.close(leader)
    assert b"embedding" in shown
    assert b"80/80" in shown
    assert b"candidates: 80" in shown


def _read_to_end(descriptor: int) -> Iterator[bytes]:
    """A terminal whose other side is closed gives an error, not an end."""
    while True:
        try:
            yield os.read(descriptor, 65_536)
        except OSError:
            return
