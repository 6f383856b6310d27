"""What on-policy distillation asks of its teacher, on a real engine: Gemma 3 270M reads answers that a student of the
same base wrote."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import torch

from gpu_runners.distill.causal.dataset import Encoded, encode, read_rows
from gpu_runners.models.causal_base import CausalBase, load_weights, open_causal_base
from tests.vllm import engine
from tests.vllm.gemma_engine import gemma_teacher, running_gemma
from tests.workers.real_servers.servers import BASE
from workers.teachers.protocol import Message, ScoreRequest
from workers.teachers.vllm.teacher import VllmTeacher
from workers.training.on_policy import N_LIKELIEST
from workers.training.sample_pairs import LEAST_PROBABILITY, with_soft_targets

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
SYSTEM = "Read the mail of a customer and write JSON."
ANSWERS = {
    "Where is order A-1042? It was promised for Friday.": '{"action": "track", "orders": [{"order_number": "A-1042"}]}',
    "Please cancel the two blue lamps.": '{"action": "cancel", "orders": [{"product": "blue lamps", "quantity": 2}]}',
    "Thanks a lot!": "It is a thank-you; nothing is to be done for 12 \u20ac.",
}


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmTeacher]:
    if not engine.COMMAND.exists() or not BASE.is_dir():
        pytest.skip("no vLLM or no Gemma here: `make setup-vllm` and `make base-gemma` bring them")
    with running_gemma(tmp_path_factory.mktemp("gemma"), proposes=False) as running:
        teacher = gemma_teacher(running.origin)
        yield teacher
        teacher.close()


@pytest.fixture(scope="module")
def base() -> CausalBase:
    return open_causal_base(BASE.name, base_dir=BASE.parent)


@pytest.fixture(scope="module")
def own(gemma: VllmTeacher, base: CausalBase) -> Encoded:
    rows = []
    for text, output in ANSWERS.items():
        messages = (Message(role="system", content=SYSTEM), Message(role="user", content=text))
        request = ScoreRequest(messages=messages, text=output, top_logprobs=N_LIKELIEST)
        choices = [asdict(one) for one in gemma.score(request, deadline_s=300).choices]
        pair: dict[str, Any] = {"input": text, "output": output, "weight": 1.0}
        rows.append(with_soft_targets(pair, choices) | {"on_policy": True})
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return encode(read_rows(data), base=base, system=SYSTEM, max_tokens=1024)


def test_the_tokens_that_the_engine_tells_are_the_bases_to_the_end_of_the_answer(own: Encoded) -> None:
    assert (own.n_on_policy, own.n_own_unmatched, own.n_too_long) == (len(ANSWERS), 0, 0)
    for example in own.examples:
        assert example.soft is not None
        assert example.n_learnt == example.n_completion


def test_its_distributions_are_those_of_the_same_weights_in_the_trainer(own: Encoded, base: CausalBase) -> None:
    model = load_weights(base).eval()
    for example in own.examples:
        assert example.soft is not None
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([example.ids])).logits[0, example.n_prompt - 1 : -1]
        likely = logits.float().softmax(dim=-1)
        there = torch.from_numpy(example.soft.probs) > LEAST_PROBABILITY
        mine = likely.gather(1, torch.from_numpy(example.soft.ids))
        torch.testing.assert_close(mine[there], torch.from_numpy(example.soft.probs)[there], rtol=0.02, atol=1e-4)
        least = likely.topk(N_LIKELIEST).values.sum(dim=1) - 0.01
        assert bool(((mine * there).sum(dim=1) >= least).all())
