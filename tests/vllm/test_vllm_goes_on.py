"""No error of our drafts ends a real vLLM engine or changes an answer; seeds draw what they draw without drafts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.protocol import Drafting, GenerationRequest, PackRef
from tests.gpu_runners.speculation.tiny_task import prompts
from tests.tiny_bases import tiny_bases  # noqa: F401
from tests.vllm import engine, faulty_proposer, recipe_engine
from tests.vllm.recipe_engine import Answer, Asked
from tests.vllm.recipe_requests import CHAIN, HELD, always, pack_of, request, written

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
N = 24


@pytest.fixture(scope="module")
def base(tiny_bases: Path) -> CausalBase:  # noqa: F811
    if not engine.COMMAND.exists():
        pytest.skip("no vLLM here: `make setup-vllm` installs one into .venv-vllm")
    return open_causal_base(recipe_engine.NAME, base_dir=tiny_bases)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm-goes-on")


@pytest.fixture(scope="module")
def vllm(base: CausalBase, folder: Path) -> Iterator[Asked]:
    python = engine.VENV / "bin" / "python"
    with recipe_engine.running(python, base.folder.parent, folder, proposer=faulty_proposer.NAME) as asked:
        yield asked


@pytest.fixture(scope="module")
def asked(base: CausalBase) -> list[list[int]]:
    return prompts(base, N, seed=5)


@pytest.fixture(scope="module")
def plain(vllm: Asked, asked: list[list[int]]) -> list[tuple[int, ...]]:
    return tokens_of(vllm.ask([request(prompt) for prompt in asked]))


@pytest.fixture(scope="module")
def ref(base: CausalBase, plain: list[tuple[int, ...]], folder: Path) -> PackRef:
    return written(pack_of(base, plain), folder)


def tokens_of(answers: Sequence[Answer]) -> list[tuple[int, ...]]:
    return [one.tokens for one in answers]


def drafted(answers: Sequence[Answer]) -> int:
    return sum(one.drafted for one in answers)


def test_a_request_with_a_fault_is_answered_and_others_keep_their_drafts(
    vllm: Asked, asked: list[list[int]], plain: list[tuple[int, ...]], ref: PackRef
) -> None:
    for fault in faulty_proposer.OF_A_REQUEST:
        before = vllm.n_errors()
        tenants = [fault if i % 3 == 0 else "whole" for i in range(N)]
        answers = vllm.ask(
            [request(prompt, always(ref), tenant=tenant) for prompt, tenant in zip(asked, tenants, strict=True)]
        )
        assert tokens_of(answers) == plain, fault
        assert all(one.drafted for one, tenant in zip(answers, tenants, strict=True) if tenant == "whole"), fault
        assert all(one.finish for one in answers)
        vllm.ask([request(asked[0], always(ref))])  # what is wrong at an end comes out in the next step
        assert vllm.n_errors() > before, f"the fault {fault} was not met: the test saw nothing"


def test_a_pack_that_is_altered_after_it_was_checked_takes_only_its_own_drafts_away(
    vllm: Asked, base: CausalBase, asked: list[list[int]], plain: list[tuple[int, ...]], ref: PackRef, folder: Path
) -> None:
    """Our engine has looked at it; vLLM's process reads it later, or again."""
    other = written(pack_of(base, plain[: N // 2]), folder)
    seeded = {"temperature": 1.0, "seed": 1}  # checked by our engine, not read by vLLM's process
    assert not vllm.ask([request(asked[0], always(other), **seeded)])[0].refused
    for data in (other.path.read_bytes()[:-9], b"", b'{"format":' * 9):
        other.path.write_bytes(data)
        refs = [other if i % 2 else ref for i in range(N)]
        answers = vllm.ask([request(prompt, always(one)) for prompt, one in zip(asked, refs, strict=True)])
        assert tokens_of(answers) == plain
        assert not drafted(answers[1::2])
        assert all(one.drafted for one in answers[::2])
    other.path.unlink()
    assert tokens_of(vllm.ask([request(prompt, always(other)) for prompt in asked])) == plain


def sampled(asked: Sequence[Sequence[int]], drafting: Drafting | None, **more: object) -> list[GenerationRequest]:
    return [request(prompt, drafting, temperature=0.9, top_k=20, seed=70 + i, **more) for i, prompt in enumerate(asked)]


def test_a_seed_draws_the_same_with_drafts_as_without(vllm: Asked, base: CausalBase, ref: PackRef) -> None:
    """Beside greedy requests that are drafted for; the prompts are more than one step reads, so that some are read in
    parts, which would end vLLM's engine on a CPU."""
    more = prompts(base, 60, seed=6)
    assert sum(map(len, more)) > 2 * 2048
    for held in ({}, {"constraint": HELD}):
        alone = vllm.ask(sampled(more, None, cache_salt="a", **held))
        beside = [request(prompt, always(ref, *CHAIN)) for prompt in more[:N]]
        mixed = vllm.ask([*beside, *sampled(more, always(ref, *CHAIN), cache_salt="b", **held)])
        assert tokens_of(mixed[N:]) == tokens_of(alone)
        assert drafted(mixed[:N])
        assert not drafted(mixed[N:])
        assert len(set(tokens_of(alone))) > 2


def test_errors_of_every_step_turn_drafting_off_and_answers_go_on(
    vllm: Asked, asked: list[list[int]], plain: list[tuple[int, ...]], ref: PackRef
) -> None:
    """Last: it stays off."""
    faulty = {"tenant": faulty_proposer.OF_A_STEP}
    assert tokens_of(vllm.ask([request(prompt, always(ref), **faulty) for prompt in asked])) == plain
    whole = vllm.ask([request(prompt, always(ref)) for prompt in asked])
    assert tokens_of(whole) == plain
    assert all(one.drafted for one in whole), "one step's errors do not turn it off"
    assert tokens_of(vllm.ask([request(prompt, always(ref), **faulty) for prompt in asked], at_once=1)) == plain
    whole = vllm.ask([request(prompt, always(ref)) for prompt in asked])
    assert tokens_of(whole) == plain
    assert not drafted(whole)
