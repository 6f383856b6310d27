"""`kolm recipes`, `kolm rules`, `kolm bench`, and what `inspect` and `run` make of packs and rules."""

import asyncio
import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from backend.domain.artifact.kolm_verify import read_kolm
from backend.domain.recipes.copy_rules import Copy, CopyKind
from backend.domain.recipes.pack import BEGIN, Recipe
from gpu_runners.artifacts.generative_model import GenerativeModel
from gpu_runners.cli.artifacts.loading import model_of
from gpu_runners.cli.main import main
from gpu_runners.models.causal_base import CausalBase
from tests.backend.domain.artifact.tiny_kolm import keyring, small_kolm
from tests.gpu_runners.small_base import make_base
from tests.gpu_runners.small_generative import generative_kolm
from tests.gpu_runners.small_packs import OPENING, RULED, ids_of, json_rules, label_rules, small_pack
from tests.gpu_runners.small_task import Trained, kolm_of

ROOT = Path(__file__).parents[4]
ORDERS = "orders.kolm"
MAILS = {"examples": {"inline": [{"input": "three teas"}, {"input": "tea and coffee"}, {"input": "costs 12"}]}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bases")


@pytest.fixture(scope="module")
def causal(folder: Path) -> CausalBase:
    return make_base(folder / "small-llama")


@pytest.fixture
def home(tmp_path: Path, folder: Path, causal: CausalBase, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an artifact of a json task that ships a recipe, two rules and three examples."""
    (tmp_path / "keyring.json").write_text(json.dumps(keyring()))
    monkeypatch.setenv("KOLM_KEYRING", str(tmp_path / "keyring.json"))
    monkeypatch.setenv("KOLM_BASE_DIR", str(folder))
    monkeypatch.chdir(tmp_path)
    beside = {
        "recipes.json": small_pack(causal),
        "rules.json": json_rules("three"),
        "spec.json": json.dumps(MAILS).encode(),
    }
    (tmp_path / ORDERS).write_bytes(generative_kolm(causal, beside=beside))
    return tmp_path


def test_copy_recipes_are_shown_in_words(home: Path, causal: CausalBase, capsys: pytest.CaptureFixture[str]) -> None:
    begins = Copy(what=CopyKind.BEGINS, place='text "size"', cue="first L after: of ", support=8, agreed=7)
    run = ids_of(causal, "tea")
    says = Copy(what=CopyKind.FOLLOWS_WORD, place="k", cue="", run=run, run_text="tea", support=4, agreed=4)
    pack = small_pack(causal, copies=(begins, says), frame=((), ()))
    Path(ORDERS).write_bytes(generative_kolm(causal, beside={"recipes.json": pack}))
    shown = said(capsys, "recipes", ORDERS)
    assert "1 and 2 of the input in " in shown
    assert "first L after: of " in shown
    assert 'says "tea"' in shown
    assert "always" in shown
    rows = [json.loads(line) for line in said(capsys, "recipes", ORDERS, "--json").splitlines()]
    assert [row.get("what") for row in rows] == [None, "begins", "says"]
    assert rows[1] | {"id": ""} == {
        "id": "",
        "what": "begins",
        "place": 'text "size"',
        "cue": "first L after: of ",
        "run": "",
        "n_tokens": 0,
        "support": 8,
        "agreed": 7,
    }


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == code
    return capsys.readouterr().out


def test_inspect_tells_of_the_pack_and_the_rules(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "inspect", ORDERS)
    assert "recipes   1 in " in text
    assert "drafts: pack then schema then prompt" in text
    assert "rules     2 for 2 fields in " in text
    documents = json.loads(said(capsys, "inspect", ORDERS, "--json"))["documents"]
    assert documents["rules.json"]["task"] == "json"
    (home / "old.kolm").write_bytes(small_kolm())
    assert "rules     none" in said(capsys, "inspect", "old.kolm")


def test_a_damaged_pack_and_rules_are_told_of_and_stop_nothing(
    home: Path, causal: CausalBase, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"recipes.json": b"{}", "rules.json": b"{}"}
    (home / "broken.kolm").write_bytes(generative_kolm(causal, beside=broken))
    text = said(capsys, "inspect", "broken.kolm")
    assert "so nothing is drafted" in text
    assert "so the model answers" in text
    assert json.loads(said(capsys, "run", "broken.kolm", "tea"))
    for command in ("recipes", "rules"):
        said(capsys, command, "broken.kolm", code=1)


def test_recipes_lists_runs_with_what_they_save(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "recipes", ORDERS)
    assert json.dumps(OPENING) in text
    assert "40/40" in text
    (row,) = [json.loads(line) for line in said(capsys, "recipes", ORDERS, "--json").splitlines()]
    assert (row["run"], row["saved_tokens"]) == (OPENING, 40 * row["n_tokens"])


def test_rules_are_listed_in_order_and_exported_as_javascript(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "rules", ORDERS)
    assert 'size: "small"' in text
    assert "20/20" in text
    assert json.loads(said(capsys, "rules", ORDERS, "--json"))["format"] == "kolm-rules/1"
    assert "export" in said(capsys, "rules", ORDERS, "--javascript")
    assert "2 rules as `answer(text)`" in said(capsys, "rules", ORDERS, "--javascript", "rules.mjs")
    said(capsys, "rules", ORDERS, "--javascript", "no/such/folder.mjs", code=1)
    if shutil.which("node"):
        script = 'import {answer} from "./rules.mjs"; console.log(answer("three teas"), answer("tea"))'
        command = ["node", "--input-type=module", "-e", script]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=home)
        assert done.stdout == f"{RULED} null\n"


def test_run_asks_the_rules_first_and_loads_no_model_where_they_are_sure(home: Path) -> None:
    script = (
        "import sys\n"
        "from gpu_runners.cli.main import main\n"
        f"code = main(['run', {ORDERS!r}, 'three teas'])\n"
        "print(code, sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))\n"
    )
    environment = {"PYTHONPATH": str(ROOT), "KOLM_KEYRING": "keyring.json"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{RULED}  0.960  rules\n0 []\n"


def test_run_gives_the_model_what_the_rules_leave(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "in.jsonl").write_text('{"input": "three teas"}\n{"input": "coffee"}\n')
    ruled, modelled = [json.loads(line) for line in said(capsys, "run", ORDERS, "--jsonl", "in.jsonl").splitlines()]
    assert (ruled["output"], ruled["rule"], ruled["n_tokens"]) == (RULED, 0, 0)
    assert "rule" not in modelled
    assert modelled["n_tokens"] > 0


def test_a_label_artifacts_rules_tell_their_number_and_their_bound(
    home: Path, trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = label_rules(("lamp", "no label"), ("zeppelin", "returns"))
    (home / "mails.kolm").write_bytes(kolm_of(trained, rules=rules))
    assert re.match(r"returns  0\.970  [\d.]+ ms  rule 2", said(capsys, "run", "mails.kolm", "a zeppelin"))
    assert "rule" not in said(capsys, "run", "mails.kolm", "a lamp")
    (home / "in.jsonl").write_text('{"input": "zeppelin 3"}\n{"input": "where is my parcel"}\n')
    text = said(capsys, "bench", "mails.kolm", "--jsonl", "in.jsonl")
    assert "nothing is drafted" in text
    assert "2 answer 1 of 2 inputs" in text


def first_tokens(causal: CausalBase, text: str, n: int) -> tuple[int, ...]:
    """What the artifact's model begins its answer with."""
    model = model_of(read_kolm(generative_kolm(causal)))
    assert isinstance(model, GenerativeModel)

    async def go() -> list[int]:
        return [token async for delta in model.engine.generate(model.request(text, 0)) for token in delta.token_ids]

    try:
        return tuple(asyncio.run(go())[:n])
    finally:
        asyncio.run(model.engine.close())


@pytest.mark.nightly
def test_bench_measures_each_source_beside_the_model_alone(
    home: Path, causal: CausalBase, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *run = first_tokens(causal, "costs 12", 6)
    going_on = Recipe(after=(BEGIN, first), shape="", run=tuple(run), after_text="{", run_text="x", support=9, agreed=9)
    beside = {
        "recipes.json": small_pack(causal, recipes=(going_on,)),
        "rules.json": json_rules("three"),
        "spec.json": json.dumps(MAILS).encode(),
    }
    (home / ORDERS).write_bytes(generative_kolm(causal, beside=beside))
    told = json.loads(said(capsys, "bench", ORDERS, "--rounds", "1", "--at-once", "2", "--json"))
    assert (told["n_inputs"], told["own_examples"]) == (3, True)
    arms = {row["arm"]: row for row in told["arms"]}
    assert list(arms) == ["cold", "pack", "schema", "prompt look-up", "chain", "as served"]
    for row in arms.values():
        assert row["n_identical"] == 3, "drafts change no answer"
        assert row["n_tokens"] == arms["cold"]["n_tokens"] > 0
        assert row["accepted"] <= row["drafted"]
        assert row["n_steps"] <= arms["cold"]["n_steps"]
    assert arms["cold"]["drafted"] == 0
    assert arms["pack"]["accepted"] > 0
    assert arms["chain"]["n_steps"] <= min(arms["pack"]["n_steps"], arms["schema"]["n_steps"])
    assert arms["pack"]["bound_milli"] == 1000 * row["n_tokens"] // (row["n_tokens"] - arms["pack"]["accepted"])
    assert told["rules"]["n_answered"] == 1
    text = said(capsys, "bench", ORDERS, "--rounds", "1", "--n", "2")
    assert "as served" in text
    assert "rules  2 answer 1 of 2 inputs" in text


@pytest.mark.nightly
def test_bench_measures_a_draft_model_that_is_named(
    home: Path, causal: CausalBase, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"spec.json": json.dumps(MAILS).encode()}
    (home / "free.kolm").write_bytes(generative_kolm(causal, "text", beside=spec, max_new_tokens=12))
    told = json.loads(said(capsys, "bench", "free.kolm", "--rounds", "1", "--draft", causal.name, "--json"))
    arms = {row["arm"]: row for row in told["arms"]}
    assert list(arms) == ["cold", "draft model", "prompt look-up", "chain"], "nothing is forced, and nothing was chosen"
    assert arms["draft model"]["drafted"] > 0
    assert {row["n_identical"] for row in arms.values()} == {3}
    assert told["rules"] is None


def test_bench_says_what_it_needs(home: Path, causal: CausalBase, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "bare.kolm").write_bytes(generative_kolm(causal))
    said(capsys, "bench", "bare.kolm", code=2)
    said(capsys, "bench", ORDERS, "--rounds", "0", code=2)
    (home / "keyring.json").unlink()
    said(capsys, "bench", ORDERS, code=3)


def test_a_pack_is_written_for_llama_server(home: Path, causal: CausalBase, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", ORDERS, "--llama-lookup", "recipes.bin"]) == 0
    shown = capsys.readouterr().out
    assert "--lookup-cache-static recipes.bin" in shown
    first = struct.unpack_from("=4i", (home / "recipes.bin").read_bytes())
    assert all(0 <= token < causal.vocab_size for token in first[:2])
    assert first[2:] == (-1, -1)


def test_what_llama_server_could_not_use_is_not_written(
    home: Path, causal: CausalBase, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "bare.kolm").write_bytes(generative_kolm(causal, beside={"recipes.json": b'{"entries": []}'}))
    assert main(["recipes", "bare.kolm", "--llama-lookup", "recipes.bin"]) == 1
    assert "no recipes" in capsys.readouterr().err
    assert main(["recipes", ORDERS, "--llama-lookup", str(home / "not" / "there.bin")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert not (home / "recipes.bin").exists()
