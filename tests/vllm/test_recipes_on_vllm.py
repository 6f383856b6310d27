"""Recipe packs on a real vLLM engine, on the CPU: answers are those without drafts, and each request has its own."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.pack import RecipePack
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.protocol import Drafting, DraftKind, GenerationRequest, PackRef
from gpu_runners.speculation.controller import Controller
from gpu_runners.speculation.drafter import Drafter
from gpu_runners.speculation.sources import PackSource
from gpu_runners.speculation.step_costs import StepCosts
from gpu_runners.speculation.vocabulary import token_texts
from tests.gpu_runners.speculation.tiny_task import prompts
from tests.greedy_replay import replay
from tests.tiny_bases import tiny_bases  # noqa: F401
from tests.vllm import engine, recipe_engine
from tests.vllm.recipe_engine import Answer, Asked
from tests.vllm.recipe_requests import CHAIN, HELD, MOST, adapter, always, hostile, pack_of, request, written
from tests.vllm.test_engine_drafts import p_value

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
TOP_K = {"temperature": 0.8, "top_k": 5}


@pytest.fixture(scope="module")
def base(tiny_bases: Path) -> CausalBase:  # noqa: F811
    if not engine.COMMAND.exists():
        pytest.skip("no vLLM here: `make setup-vllm` installs one into .venv-vllm")
    return open_causal_base(recipe_engine.NAME, base_dir=tiny_bases)


@pytest.fixture(scope="module")
def vllm(base: CausalBase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("recipes-on-vllm")
    with recipe_engine.running(engine.VENV / "bin" / "python", base.folder.parent, folder) as asked:
        yield asked


@dataclass(frozen=True)
class Task:
    """Prompts with the answers that the engine gives without drafts, and a pack of the answers to others."""

    prompts: list[list[int]]
    plain: list[tuple[int, ...]]
    pack: RecipePack
    ref: PackRef


@pytest.fixture(scope="module")
def task(base: CausalBase, vllm: Asked, tmp_path_factory: pytest.TempPathFactory) -> Task:
    asked = prompts(base, 200)
    answers = [one.tokens for one in vllm.ask([request(prompt) for prompt in asked])]
    pack = pack_of(base, answers[:100])
    folder = tmp_path_factory.mktemp("packs")
    return Task(prompts=asked[100:], plain=answers[100:], pack=pack, ref=written(pack, folder))


def tokens_of(answers: Sequence[Answer]) -> list[tuple[int, ...]]:
    return [one.tokens for one in answers]


def test_greedy_answers_are_the_same_with_a_pack_and_take_fewer_steps(vllm: Asked, task: Task) -> None:
    for drafting in (always(task.ref), always(task.ref, *CHAIN), Drafting(kinds=CHAIN, pack=task.ref)):
        answers = vllm.ask([request(prompt, drafting) for prompt in task.prompts])
        assert tokens_of(answers) == task.plain
        n_tokens, n_steps = sum(len(one.tokens) for one in answers), sum(one.steps for one in answers)
        if not drafting.is_gated:  # how much a loaded machine's clock lets through is its own
            assert n_tokens > 2 * n_steps, "the drafts brought nothing: the test saw nothing"


def test_what_the_hook_counts_by_source_is_what_vllm_counts(vllm: Asked, task: Task) -> None:
    answers = vllm.ask([request(prompt, always(task.ref, *CHAIN)) for prompt in task.prompts])
    assert {one.kind for answer in answers for one in answer.by_source} == {DraftKind.PACK, DraftKind.PROMPT}
    for answer in answers:
        assert sum(one.drafted for one in answer.by_source) == answer.drafted
        assert sum(one.accepted for one in answer.by_source) == answer.accepted


class Replaying:
    """A pack's drafts as `replay` asks for them."""

    def __init__(self, index: PackIndex, base: CausalBase) -> None:
        controller = Controller(StepCosts(), is_gated=False)
        ends = frozenset(base.eos_ids)
        self._drafter = Drafter([PackSource(index)], controller, max_draft=16, matcher=None, end_ids=ends)

    def propose(self, most: int) -> Sequence[int]:
        return self._drafter.propose(most)

    def advance(self, token: int) -> None:
        self._drafter.advance([token])


def test_a_replay_without_an_engine_predicts_its_counters(vllm: Asked, base: CausalBase, task: Task) -> None:
    index = PackIndex(task.pack, token_texts(base))
    replayed = replay(task.plain, lambda _: Replaying(index, base), max_draft=16, limit=MOST)
    answers = vllm.ask([request(prompt, always(task.ref)) for prompt in task.prompts])
    assert sum(one.drafted for one in answers) == replayed.n_drafted
    assert sum(one.accepted for one in answers) == replayed.n_accepted
    assert sum(one.steps for one in answers) == replayed.n_steps


def test_a_hostile_pack_changes_no_answer_and_the_gate_stops_it(vllm: Asked, base: CausalBase, task: Task) -> None:
    ref = hostile(base, task.pack, task.ref.path.parent)
    answers = vllm.ask([request(prompt, always(ref)) for prompt in task.prompts])
    assert tokens_of(answers) == task.plain
    wasted = sum(one.drafted for one in answers)
    assert wasted > 10 * sum(one.accepted for one in answers)
    gated = vllm.ask([request(prompt, Drafting(kinds=(DraftKind.PACK,), pack=ref)) for prompt in task.prompts])
    assert tokens_of(gated) == task.plain
    assert sum(one.drafted for one in gated) < wasted / 20


def test_each_tenant_in_one_batch_is_drafted_for_from_its_own_pack(vllm: Asked, base: CausalBase, task: Task) -> None:
    """What the engine counts for each beside the others is what it counts alone."""
    draftings = (always(task.ref), always(hostile(base, task.pack, task.ref.path.parent)), None)

    def asked(places: Sequence[int]) -> list[GenerationRequest]:
        return [
            request(prompt, draftings[place], tenant=f"tenant-{place}", cache_salt=f"tenant-{place}")
            for prompt in task.prompts[:30]
            for place in places
        ]

    together = vllm.ask(asked((0, 1, 2)))
    for place in (0, 1, 2):
        alone = vllm.ask(asked((place,)))
        assert [(one.tokens, one.by_source) for one in together[place::3]] == [
            (one.tokens, one.by_source) for one in alone
        ]
    assert all(not one.drafted for one in together[2::3])


def test_a_schema_is_drafted_for_and_kept(vllm: Asked, task: Task) -> None:
    held = {"constraint": HELD}
    plain = vllm.ask([request(prompt, **held) for prompt in task.prompts[:40]])
    drafting = always(None, DraftKind.SCHEMA)
    drafted = vllm.ask([request(prompt, drafting, **held) for prompt in task.prompts[:40]])
    assert tokens_of(drafted) == tokens_of(plain)
    assert all(set(json.loads(one.text)) == {"delivery_day", "urgent"} for one in drafted)
    n_accepted = sum(one.accepted for one in drafted)
    assert n_accepted > sum(len(one.tokens) for one in drafted) / 3
    assert {one.kind for answer in drafted for one in answer.by_source} == {DraftKind.SCHEMA}


def test_stop_texts_and_limits_inside_a_drafted_run_cut_as_without_drafts(vllm: Asked, task: Task) -> None:
    for more in ({"stop": ('", "',)}, {"stop": ("y",)}, {"max_new_tokens": 7}, {"max_new_tokens": 1}):
        plain = vllm.ask([request(prompt, **more) for prompt in task.prompts[:30]])
        drafted = vllm.ask([request(prompt, always(task.ref), **more) for prompt in task.prompts[:30]])
        assert [(one.text, one.finish) for one in drafted] == [(one.text, one.finish) for one in plain]
        assert all(one.accepted <= len(one.tokens) for one in drafted)


def test_a_request_at_the_end_of_the_context_takes_nobodys_drafts_away(vllm: Asked, task: Task) -> None:
    """vLLM alone would feed all requests zeros while one of them is within a draft's length of the end."""
    long = [*task.prompts[0] * 6, *task.prompts[1]][-508:]
    assert len(long) > 480
    (alone,) = vllm.ask([request(long)])
    asked = [request(long, always(task.ref)), *(request(prompt, always(task.ref)) for prompt in task.prompts[:20])]
    at_the_end, *others = vllm.ask(asked)
    assert at_the_end.tokens == alone.tokens
    counted = vllm.ask([request(prompt, always(task.ref)) for prompt in task.prompts[:20]])
    assert [(one.tokens, one.drafted) for one in others] == [(one.tokens, one.drafted) for one in counted]


def test_a_pack_of_another_tokenizer_or_an_altered_one_is_refused(vllm: Asked, task: Task) -> None:
    folder = task.ref.path.parent
    foreign = written(replace(task.pack, tokenizer_sha256="0" * 64), folder)
    altered = written(replace(task.pack, max_draft=9), folder)
    altered.path.write_bytes(task.ref.path.read_bytes())
    missing = PackRef(key="1" * 64, path=folder / "missing.json")
    answers = vllm.ask([request(task.prompts[0], always(ref)) for ref in (foreign, altered, missing)])
    assert [one.refused for one in answers] == ["bad_pack"] * 3


def test_sampled_answers_have_the_distribution_of_those_without_drafts(
    vllm: Asked, base: CausalBase, task: Task
) -> None:
    """On a CPU vLLM 0.32 alone would not (its issue 55005)."""
    wrong = hostile(base, task.pack, task.ref.path.parent)
    cases = ((task.prompts[0], {"temperature": 1.0}, task.ref), (task.prompts[2], TOP_K, wrong))
    for prompt, sampling, ref in cases:
        without, _ = drawn(vllm, prompt, None, **sampling)
        drafted, n_drafted = drawn(vllm, prompt, always(ref), **sampling)
        p = p_value(without, drafted)
        print(f"{sampling}: p = {p:.3f}")
        assert n_drafted > 1000
        assert p > 1e-3


def drawn(vllm: Asked, prompt: Sequence[int], drafting: Drafting | None, **sampling: float) -> tuple[Counter[str], int]:
    """How often each beginning of six tokens was sampled, and how many tokens were drafted. The engine's own random
    numbers: a request with a seed is not drafted for."""
    answers = vllm.ask([request(prompt, drafting, max_new_tokens=6, **sampling) for _ in range(1200)])
    return Counter(one.text for one in answers), sum(one.drafted for one in answers)


def test_adapters_and_packs_go_together(vllm: Asked, base: CausalBase, task: Task, tmp_path: Path) -> None:
    refs = [adapter(base, tmp_path / str(n), number=n) for n in (1, 2)]
    asked = [(prompt, ref) for prompt in task.prompts[:20] for ref in (*refs, None)]
    plain = vllm.ask([request(prompt, adapter=ref) for prompt, ref in asked])
    drafted = vllm.ask([request(prompt, always(task.ref, *CHAIN), adapter=ref) for prompt, ref in asked])
    assert tokens_of(drafted) == tokens_of(plain)
    assert tokens_of(plain)[0] != tokens_of(plain)[2], "the adapter changed nothing: the test saw nothing"


def test_what_packs_brought_is_told_by_tenant_without_any_text(vllm: Asked, task: Task) -> None:
    asked = [request(prompt, always(task.ref), tenant="tenant-a") for prompt in task.prompts[:6]]
    vllm.ask(asked[:5])
    vllm.feedback()
    time.sleep(5.2)  # it comes with an answer's end, every five seconds at most
    vllm.ask(asked[5:])
    told = [one for tenant, one in vllm.feedback() if tenant == "tenant-a"]
    assert told
    known = {recipe.id for recipe in task.pack.recipes}
    for one in told:
        assert {row["id"] for row in one["tried"]} <= known
        assert one["learned"] == []
