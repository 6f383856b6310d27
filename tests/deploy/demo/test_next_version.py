"""The next version of an example: nothing of its prompts stays word for word, its gold is the same, and the grammar
teacher writes, labels and judges it as the earlier version's."""

import math
from typing import Any

import pytest
import yaml

from backend.domain.spec.parsing import LabelOutput, Spec, parse_spec
from deploy.demo.next_version import CHANGES, next_version
from deploy.embedded.home import ROOT
from workers.teachers.grammar.files import shipped_grammar
from workers.teachers.grammar.model import GrammarModel, Policy
from workers.teachers.prompts.candidate_and_label import candidate_request, label_request
from workers.teachers.protocol import CompletionRequest


@pytest.fixture(scope="module", params=sorted(CHANGES))
def example(request: pytest.FixtureRequest) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((ROOT / "examples" / f"{request.param}.yaml").read_text())
    return spec


@pytest.fixture(scope="module")
def model() -> GrammarModel:
    return GrammarModel(shipped_grammar())


def content_of(request: CompletionRequest) -> str:
    return "\n\n".join(message.content for message in request.messages)


def candidate_prompt(spec: Spec, position: int) -> str:
    return content_of(candidate_request(spec, spec.slices[position], n=4, temperature=1.0, seed=7, exemplars=()))


def test_every_hint_is_in_other_words_one_label_has_another_name_and_one_slice_is_new(example: dict[str, Any]) -> None:
    before, after = parse_spec(example), parse_spec(next_version(example))
    hints = {part.name: part.hint for part in before.slices}
    new = [part for part in after.slices if part.name not in hints]
    assert len(new) == 1
    assert all(part.hint != hints[part.name] for part in after.slices if part.name in hints)
    assert {part.name for part in after.slices} > set(hints)
    assert isinstance(before.output, LabelOutput)
    assert isinstance(after.output, LabelOutput)
    names = [(old.name, label.name) for old, label in zip(before.output.labels, after.output.labels, strict=True)]
    assert len([pair for pair in names if pair[0] != pair[1]]) == 1
    assert math.isclose(sum(part.share for part in after.slices), 1)


def test_the_gold_is_the_same_under_the_new_name(example: dict[str, Any]) -> None:
    before, after = parse_spec(example), parse_spec(next_version(example))
    old, new = CHANGES[example["name"]].renamed
    assert [(row.input, row.output) for row in after.examples.inline] == [
        (row.input, new if row.output == old else row.output) for row in before.examples.inline
    ]


def test_no_prompt_of_the_next_version_is_one_of_the_earlier(example: dict[str, Any]) -> None:
    before, after = parse_spec(example), parse_spec(next_version(example))
    prompts = [{candidate_prompt(spec, i) for i in range(len(spec.slices))} for spec in (before, after)]
    assert not prompts[0] & prompts[1]


def test_the_grammar_writes_every_slice_of_both_versions_and_labels_it(
    example: dict[str, Any], model: GrammarModel
) -> None:
    grammar = shipped_grammar()
    for spec in (parse_spec(example), parse_spec(next_version(example))):
        for i, part in enumerate(spec.slices):
            start = grammar.slices[part.name].start
            written = model.answer(candidate_prompt(spec, i), n=4, seed=1, policy=Policy())
            assert all(grammar.logprob(start, one.text, temperature=1.0) > -math.inf for one in written)
            request = label_request(spec, written[0].text, n=1, temperature=0.2, seed=1)
            (label,) = model.answer(content_of(request), n=1, seed=1, policy=Policy(temperature=0.2))
            assert label.text == part.label


def test_the_command_writes_a_spec_that_parses(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    from deploy.demo import next_version as command

    path = ROOT / "examples" / "repair-desk.yaml"
    monkeypatch.setattr("sys.argv", ["next_version", str(path)])
    assert command.main() == 0
    assert parse_spec(yaml.safe_load(capsys.readouterr().out)).name == "repair-desk"
