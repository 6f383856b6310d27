"""The wrong held-out answers by the client and by `kolm show --wrong`, against the real web process."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import fields

import pytest

from gpu_runners import kolm
from gpu_runners.cli.main import main
from tests.gpu_runners.kolm.heldout_world import HOSTILE
from tests.gpu_runners.kolm.heldout_world import __name__ as WORLD
from tests.web_stack import WebStack

pytestmark = [pytest.mark.timeout(120)]
Show = Callable[..., tuple[int, list[str], str]]


@pytest.fixture(scope="module")
def world(stack: WebStack) -> dict[str, str]:
    """{key, label, json, waiting}: a tenant's key and its compiles."""
    process = stack.deployment.python("-m", WORLD, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=60)
    made: dict[str, str] = json.loads(out.splitlines()[-1])
    return made


@pytest.fixture
def show(
    stack: WebStack, world: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Show:
    """`show("label", "--wrong")` -> (exit code, lines of output with single spaces, errors)."""
    monkeypatch.setenv("KOLM_API_URL", stack.deployment.url)
    monkeypatch.setenv("KOLM_API_KEY", world["key"])

    def act(name: str, *arguments: str) -> tuple[int, list[str], str]:
        capsys.readouterr()
        code = main(["show", world.get(name, name), *arguments])
        out, err = capsys.readouterr()
        return code, [" ".join(line.split()) for line in out.splitlines()], err

    return act


def test_the_client_walks_the_answers_and_reads_the_confusions(stack: WebStack, world: dict[str, str]) -> None:
    with kolm.Client(world["key"], stack.deployment.url) as client:
        answers = list(client.compiles.answers(world["label"]))
        assert [one.row for one in answers] == list(range(27))
        assert {each.name for each in fields(kolm.HeldoutAnswer)} - {"raw"} <= set(answers[0].raw)
        assert [one.row for one in client.compiles.answers(world["label"], wrong=True, predicted="")] == [25]
        assert len(list(client.compiles.answers(world["label"], wrong=True, limit=3))) == 3
        assert client.compiles.confusions(world["json"])["worst"] == "/lines/*/sku"
        with pytest.raises(kolm.Conflict) as refused:
            next(client.compiles.answers(world["waiting"]))
        assert refused.value.code == "not_evaluated"


def test_the_wrong_answers_of_a_label_task_are_shown_with_their_inputs(show: Show) -> None:
    code, lines, _ = show("label", "--wrong", "--limit", "2")
    assert code == 0
    assert lines[:2] == [
        "26 of 27 held-out answers are wrong.",
        "The worst label is refund: recall 0.000, n = 25.",
    ]
    assert "refund other 25" in lines
    assert "row 0: refund, answered other; confidence 0.900" in lines
    assert "AB-1 [bold]\\u001b[31m red\\u202e XY-2" in lines
    assert lines[-1] == "These are 2 of 26; --limit shows more, --field, --label and --check others."


def test_a_label_or_a_confusion_chooses_among_them(show: Show) -> None:
    _, lines, _ = show("label", "--wrong", "--gold", "other")
    assert lines[1] == "row 25: other, answered ?; confidence 0.900"
    assert len([line for line in lines if line.startswith("row")]) == 1
    assert (
        show("label", "--wrong", "--label", "other", "--limit", "99")[1].count(
            "row 0: refund, answered other; confidence 0.900"
        )
        == 1
    )
    assert show("label", "--wrong", "--gold", "other", "--predicted", "refund")[1] == ["No wrong answer fits."]


def test_the_wrong_answers_of_a_json_task_name_field_values_and_places(show: Show) -> None:
    code, lines, _ = show("json", "--wrong", "--field", "/lines/*/sku")
    assert code == 0
    assert lines[1] == "row 0: /kind order, answered return; /lines/*/sku AB-1, answered XY-2; confidence 0.900"
    assert lines[3] == "/lines/0/sku: copied from 22 to 26, 0.987"
    _, lines, _ = show("json", "--wrong", "--check", "schema")
    assert lines[1] == "row 5: /kind order, answered nothing; fails schema; answered {; confidence 0.900"
    assert lines[3] == "/kind: not copied"


def test_programs_get_the_confusions_and_the_answers_as_one_object(show: Show) -> None:
    _, lines, _ = show("json", "--wrong", "--json", "--limit", "1")
    (value,) = map(json.loads, lines)
    assert (value["task"], value["n_wrong"], [one["row"] for one in value["answers"]]) == ("json", 6, [0])
    assert value["answers"][0]["input"] == " ".join(HOSTILE.split())


def test_what_cannot_be_asked_is_said(show: Show) -> None:
    assert show("label", "--field", "/kind")[0] == 2
    assert show("art_1", "--wrong")[0] == 2
    code, _, err = show("waiting", "--wrong")
    assert (code, "not answered yet" in err) == (1, True)
    code, _, err = show("label", "--wrong", "--field", "/kind")
    assert (code, "json tasks" in err) == (1, True)
