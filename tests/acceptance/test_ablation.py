"""`kolm ablate --of` on the real stack: one arm of the small spec's compile, trained, evaluated and compared."""

import json

import pytest

from backend.domain.lifecycle import StepName
from gpu_runners.cli.main import main
from tests.acceptance.books import check_books, teacher_calls
from tests.acceptance.deployment import Customer, Deployment, Row

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]


@pytest.mark.nightly
def test_without_selection_from_the_same_candidates(
    deployment: Deployment, customer: Customer, compile: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    access = ["--api", deployment.url, "--key", customer.key]
    assert main(["ablate", "--of", compile["id"], "--arms", "all", *access]) == 0
    shown = capsys.readouterr().out
    # the arm is there by now: asked again, nothing is compiled
    assert main(["ablate", "--of", compile["id"], "--arms", "all", "--json", *access]) == 0
    (arm,) = json.loads(capsys.readouterr().out)["ablations"]
    assert [row["id"] for row in customer.get(f"/v1/compiles/{compile['id']}/ablations")["data"]] == [arm["id"]]

    found = arm["comparison"]
    n = found["paired"]["n"]
    assert n == compile["evaluation"]["n"] == sum(found["paired"][k] for k in ("both", "first", "second", "neither"))
    assert found["selected"]["correct"] == compile["evaluation"]["correct"]
    row = customer.get(f"/v1/compiles/{arm['id']}")
    assert found["arm"]["correct"] == row["evaluation"]["correct"]
    assert row["ablation"] == {"of": compile["id"], "arm": "all"}
    assert row["name"] == f"{compile['name']}-ablation-all"
    assert f"With {found['selected']['n_labels']} labels instead of {found['arm']['n_labels']}" in shown

    check_books(deployment, customer, row)
    steps = {step["name"]: step for step in customer.get(f"/v1/compiles/{arm['id']}/steps")["data"]}
    for name in (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION):
        assert steps[name]["spent_microusd"] == 0
    for step in steps.values():
        assert step["spent_microusd"] <= step["estimate"]["high_microusd"], step["name"]
    asked = [call["key"] for call in teacher_calls(deployment, arm["id"])]
    assert all(key.startswith("labeling:") for key in asked)
    assert len(asked) == found["arm"]["n_labels"] - found["arm"]["n_labels_reused"]
    digests = [
        customer.get(f"/v1/compiles/{id}/steps")["data"][0]["output"]["digests"] for id in (compile["id"], arm["id"])
    ]
    assert digests[0] == digests[1], "the same held-out rows"
