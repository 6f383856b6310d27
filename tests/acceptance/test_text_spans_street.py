"""A text task of fixed forms walks the whole street as a span student: wherever it is asked, it answers with the
finished sentence that its evaluation measured."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

from deploy.embedded.home import ROOT
from tests.acceptance.deployment import Customer, Deployment, Row, eventually
from tests.acceptance.json_specs import small_tickets
from tests.gpu_runners.serving.served_students import serving

pytestmark = pytest.mark.timeout(400)
N_ASKED = 12


@pytest.fixture(scope="module")
def tickets(customer: Customer) -> Row:
    return customer.succeeded(customer.compile(small_tickets("tickets")), within_s=300)


@pytest.fixture(scope="module")
def measured(customer: Customer, tickets: Row) -> dict[str, str]:
    """Held-out mails with the sentences that the evaluation judged."""
    rows = customer.get(f"/v1/compiles/{tickets['id']}/answers", limit=100)["data"]
    answers = {row["input"]: row["predicted"] for row in rows if "\n" not in row["input"]}
    assert len(set(answers.values())) > 2
    return dict(list(answers.items())[:N_ASKED])


@pytest.fixture(scope="module")
def folder(customer: Customer, tickets: Row, keyring: Row, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the artifact and the keyring that trusts it."""
    folder = tmp_path_factory.mktemp("tickets")
    (folder / "tickets.kolm").write_bytes(customer.download(tickets["artifact"]))
    (folder / "keys.json").write_text(json.dumps(keyring))
    return folder


def kolm(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "gpu_runners.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=ROOT, check=True).stdout


def test_preflight_and_evaluation_say_which_forms_it_answers_in(tickets: Row) -> None:
    line = next(line for line in tickets["preflight"]["lines"] if line["check"] == "student")
    assert (line["status"], "fixed forms" in line["sentence"]) == ("passed", True)
    assert "Wants to cancel order {part_1}." in tickets["evaluation"]["extraction"]["forms"]


def test_every_step_is_paid_within_its_estimate(customer: Customer, tickets: Row) -> None:
    for step in customer.get(f"/v1/compiles/{tickets['id']}/steps")["data"]:
        assert step["spent_microusd"] <= step["estimate"]["high_microusd"], step["name"]


def test_the_wrong_answers_are_sentences_beside_gold(customer: Customer, tickets: Row) -> None:
    rows = customer.get(f"/v1/compiles/{tickets['id']}/answers", wrong="true", limit=20)["data"]
    assert rows
    odd = [row for row in rows if row["predicted"] == row["gold"] or not row["predicted"].endswith(".")]
    assert not odd, json.dumps(odd[0])


def test_the_page_of_wrong_answers_shows_the_sentences(customer: Customer, tickets: Row) -> None:
    shown = kolm("show", tickets["id"], "--wrong", *api_options(customer))
    row = customer.get(f"/v1/compiles/{tickets['id']}/answers", wrong="true", limit=1)["data"][0]
    assert row["predicted"] in shown
    assert "Wants to" in kolm("show", tickets["id"], *api_options(customer))


def api_options(customer: Customer) -> list[str]:
    return ["--key", customer.key, "--api", str(customer.api.base_url)]


def test_the_artifact_is_verified_and_inspected_as_a_text_of_fixed_forms(folder: Path) -> None:
    file, keys = folder / "tickets.kolm", folder / "keys.json"
    assert kolm("verify", file, "--keyring", keys)
    said = kolm("inspect", file)
    assert "text of fixed forms" in said
    assert "JSON" not in said


def test_it_runs_offline_with_the_measured_sentences(folder: Path, measured: dict[str, str]) -> None:
    file, keys = folder / "tickets.kolm", folder / "keys.json"
    lines = kolm("run", file, *measured, "--json", "--keyring", keys).splitlines()
    assert [json.loads(line)["output"] for line in lines] == list(measured.values())
    (plain,) = kolm("run", file, next(iter(measured)), "--keyring", keys).splitlines()
    assert plain.startswith(next(iter(measured.values())))


def test_a_table_gets_a_column_of_sentences(folder: Path, measured: dict[str, str]) -> None:
    table = folder / "mails.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["mail"], *([text] for text in measured)])
    out = folder / "answered.csv"
    options = ("--in", table, "--column", "mail", "--out", out, "--keyring", folder / "keys.json")
    kolm("run", folder / "tickets.kolm", *options)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["answer"] for row in rows] == list(measured.values())


def test_kolm_serve_answers_each_of_its_addresses_with_the_sentence(folder: Path, measured: dict[str, str]) -> None:
    text, sentence = next(iter(measured.items()))
    with serving((folder / "tickets.kolm").read_bytes()) as (client, _):
        outputs = client.post("/v1/run", json={"inputs": list(measured)}).json()["outputs"]
        assert [one["output"] for one in outputs] == list(measured.values())
        with openai.OpenAI(api_key="none", base_url=f"{client.base_url}/v1", max_retries=0) as known:
            chat = known.chat.completions.create(model="tickets", messages=[{"role": "user", "content": text}])
            assert chat.choices[0].message.content == sentence
            assert known.responses.create(model="tickets", input=text).output_text == sentence


def test_the_artifact_and_its_deployment_answer_with_the_sentences(
    deployment: Deployment, customer: Customer, tickets: Row, measured: dict[str, str]
) -> None:
    def run() -> Row | None:
        answer = customer.api.post(f"/v1/artifacts/{tickets['artifact']}/run", json={"inputs": list(measured)})
        assert answer.status_code in {200, 503}, answer.text  # 503 while the runner loads the model
        return dict(answer.json()) if answer.status_code == 200 else None

    outputs = eventually(run, within_s=100)["outputs"]
    assert [one["output"] for one in outputs] == list(measured.values())
    made = customer.api.post("/v1/deployments", json={"name": "tickets", "artifact": tickets["artifact"]})
    assert made.status_code == 201, made.text
    assert made.json()["task_type"] == "text"
    text, sentence = next(iter(measured.items()))
    with openai.OpenAI(api_key=customer.key, base_url=f"{deployment.url}/v1", timeout=120) as known:
        chat = known.chat.completions.create(model="tickets", messages=[{"role": "user", "content": text}])
        assert chat.choices[0].message.content == sentence
        assert known.responses.create(model="tickets", input=text).output_text == sentence


def test_the_exported_graph_reads_the_form_and_its_parts_and_says_who_writes_the_sentence(
    folder: Path, measured: dict[str, str]
) -> None:
    out = folder / "onnx"
    said = kolm("export", folder / "tickets.kolm", "--to", "onnx", "--out", out, "--keyring", folder / "keys.json")
    assert "kolm run and kolm serve write the text" in said
    command = [sys.executable, str(out / "run.py"), *measured]
    made = subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=folder, check=True)
    n_alike = 0  # `kolm run` weighs the kind with the parts that it allows, which the graph's runner does not
    for line, (text, sentence) in zip(map(json.loads, made.stdout.splitlines()), measured.items(), strict=True):
        n_alike += sentence.startswith(line["classes"]["/kind"].partition("{")[0])
        assert all(text[one["start"] : one["end"]] == one["text"] for one in line["spans"])
    assert n_alike >= len(measured) / 2


def test_texts_without_a_form_are_refused_before_anything_is_spent(customer: Customer) -> None:
    spec: dict[str, Any] = small_tickets("free-texts")
    free = (f"Said no. {n}: so {'very ' * (n % 9)}much {n * 7}." for n in range(1_000))
    inline = [row | {"output": text} for row, text in zip(_gold(spec), free, strict=False)]
    spec["examples"] = {"holdout": 0.5, "inline": inline}
    ended = customer.ended(customer.compile(spec), within_s=60)
    assert (ended["status"], ended["failure"]["code"]) == ("failed", "preflight_failed")
    line = next(line for line in ended["preflight"]["lines"] if line["check"] == "student")
    assert (line["status"], line["code"]) == ("failed", "not_extractable")
    assert ended["spent_microusd"] == 0


def _gold(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec["examples"]["inline"])
