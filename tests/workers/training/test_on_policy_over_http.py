"""On-policy distillation whose teacher is the client of vLLM that a spec gets, on a server in vLLM's shapes."""

from collections.abc import Iterator
from typing import Any

import pytest

from backend.blobs import get_jsonl
from backend.compiles.models import Compile
from backend.domain.lifecycle import CompileStatus, StepName
from tests.compile_factories import fresh
from tests.workers.answer_helpers import (
    TEST,
    TEXTS,
    TRAIN,
    advance,
    answered,
    at_distillation,
    bring,
    json_answer,
    right,
    trained,
)
from tests.workers.pipeline_helpers import calls, check_money
from tests.workers.teachers.vllm.small_vllm import END, SmallVllm, small_vllm
from tests.workers.training.test_on_policy import VLLM, first_training, on_policy

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def server(settings: Any) -> Iterator[SmallVllm]:
    with small_vllm() as running:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (running.origin,)
        yield running


def begun(server: SmallVllm) -> Compile:
    row = at_distillation(json_answer, **(on_policy() | {"teacher": VLLM | {"base_url": server.base_url}}))
    first_training(row)
    advance(row)
    return row


def test_the_second_training_has_what_the_server_told_of_each_token(server: SmallVllm) -> None:
    row = begun(server)
    rows = get_jsonl(row.tenant_id, bring(row, TRAIN, trained(row, n_pairs=11))["dataset_sha256"])
    assert len(rows) == len(TEXTS) == len(server.bodies["/v1/completions"])
    for one in rows:
        texts = [text for text, _ in one["soft_targets"]]
        assert "".join(texts) == one["output"] + END
        assert all(set(top) == {text, " other"} for text, top in one["soft_targets"])
        assert one["on_policy"] is True
    advance(row)
    bring(row, TEST, answered(right(24)))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    check_money(row)
    assert {call.step for call in calls(row)} == {StepName.DISTILLATION}


def test_the_teacher_reads_the_answer_under_the_prompt_that_it_labels_with(server: SmallVllm) -> None:
    begun(server)
    prompts = [server.text_of(body["prompt"]) for body in server.bodies["/v1/completions"]]
    assert all(prompt.startswith("<|system|>") for prompt in prompts)
    assert sorted(prompt.rpartition("<|assistant|>")[2] for prompt in prompts) == sorted(
        f"mine of pair {i}{END}" for i in range(len(TEXTS))
    )


def test_a_server_that_allows_fewer_log_probs_ends_the_compile_by_its_refusal(settings: Any) -> None:
    with small_vllm(max_logprobs=5) as server:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (server.origin,)
        row = begun(server)
        assert (fresh(row).status, fresh(row).failure_code) == (CompileStatus.FAILED, "teacher_rejected")
