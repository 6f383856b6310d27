"""Drafts for a batch: who is asked, what is dropped, tenants apart, and our engine with every source."""

import dataclasses
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.pack import Recipe, RecipePack
from gpu_runners.engine.model_drafts import open_drafts
from gpu_runners.engine.sync import Finished, generate_all
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.protocol import (
    Constraint,
    ConstraintKind,
    Drafting,
    DraftKind,
    GenerationRequest,
    PackRef,
    Rejected,
)
from gpu_runners.speculation.batch import BatchDrafter
from gpu_runners.speculation.vocabulary import observed_of, token_texts
from tests.gpu_runners.speculation.small_sources import SmallRow, verified
from tests.gpu_runners.speculation.tiny_task import prompts
from tests.tiny_bases import TINY, tiny_bases  # noqa: F401 (a fixture)

KINDS = tuple(DraftKind)
_FIELDS = ("delivery_city", "delivery_day", "main_dish")
SCHEMA = Constraint(
    kind=ConstraintKind.JSON_SCHEMA,
    value=json.dumps(
        {"type": "object", "properties": {name: {"type": "string"} for name in _FIELDS}, "required": list(_FIELDS)}
    ),
)


@pytest.fixture(scope="module")
def tiny(tiny_bases: Path) -> CausalBase:  # noqa: F811
    return open_causal_base(TINY, base_dir=tiny_bases)


@pytest.fixture(scope="module")
def engine(tiny: CausalBase) -> Iterator[TorchEngine]:
    engine = TorchEngine(tiny, max_running=8, draft_base=tiny)
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def pack(tiny: CausalBase, engine: TorchEngine) -> RecipePack:
    said = answered(engine, tiny, None, n=24, seed=1)
    return build_pack(
        [observed_of(tiny, answer.text, [answer.text]) for answer in said],
        token_texts(tiny),
        tokenizer_sha256=tiny.tokenizer_sha256,
        base=tiny.name,
        options=PackOptions(),
        end_ids=tiny.eos_ids,
    )


def answered(
    engine: TorchEngine, base: CausalBase, drafting: Drafting | None, *, n: int = 8, seed: int = 2, **more: object
) -> list[Finished]:
    asked = [
        GenerationRequest(
            id=str(i),
            prompt=tuple(prompt),
            max_new_tokens=40,
            drafting=drafting,
            tenant="t",
            **more,  # type: ignore[arg-type]
        )
        for i, prompt in enumerate(prompts(base, n, seed=seed))
    ]
    return generate_all(engine, asked)


def ref_of(pack: RecipePack, folder: Path) -> PackRef:
    data = pack.to_bytes()
    key = hashlib.sha256(data).hexdigest()
    path = folder / f"{key}.json"
    path.write_bytes(data)
    return PackRef(key=key, path=path)


def spoiled(pack: RecipePack, texts: list[bytes]) -> RecipePack:
    """The same places, each followed by eight words that never come."""
    rng, words = random.Random(1), [i for i, text in enumerate(texts) if text.isalpha()]

    def spoil(recipe: Recipe) -> Recipe:
        run = tuple(rng.choice(words) for _ in range(8))
        return dataclasses.replace(recipe, run=run, run_text=b"".join(texts[i] for i in run).decode())

    return dataclasses.replace(pack, recipes=tuple(spoil(recipe) for recipe in pack.recipes))


def sums(said: list[Finished], kind: DraftKind) -> tuple[int, int]:
    counts = [count for answer in said for count in answer.counts.by_source if count.kind is kind]
    return sum(count.drafted for count in counts), sum(count.accepted for count in counts)


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_changes_no_greedy_answer_of_our_engine(
    engine: TorchEngine, tiny: CausalBase, pack: RecipePack, tmp_path: Path, kind: DraftKind
) -> None:
    drafting = Drafting(kinds=(kind,), pack=ref_of(pack, tmp_path), is_gated=False)
    more = {"constraint": SCHEMA} if kind is DraftKind.SCHEMA else {}
    plain, drafted = answered(engine, tiny, None, **more), answered(engine, tiny, drafting, **more)
    assert [answer.text for answer in drafted] == [answer.text for answer in plain]
    n_drafted, n_accepted = sums(drafted, kind)
    assert n_accepted > 0
    assert sum(answer.counts.steps for answer in drafted) < sum(answer.counts.steps for answer in plain)
    if kind is DraftKind.MODEL:  # the same model
        assert n_accepted == n_drafted


def test_all_sources_one_after_the_other_change_no_answer(
    engine: TorchEngine, tiny: CausalBase, pack: RecipePack, tmp_path: Path
) -> None:
    ref = ref_of(pack, tmp_path)
    plain = answered(engine, tiny, None)
    for is_gated in (False, True):
        drafted = answered(engine, tiny, Drafting(kinds=KINDS, pack=ref, is_gated=is_gated, max_draft=8))
        assert [answer.text for answer in drafted] == [answer.text for answer in plain]


def test_a_hostile_pack_is_hardly_drafted_from(
    engine: TorchEngine, tiny: CausalBase, pack: RecipePack, tmp_path: Path
) -> None:
    ref = ref_of(spoiled(pack, token_texts(tiny)), tmp_path)
    plain = answered(engine, tiny, None, n=12)
    gated = answered(engine, tiny, Drafting(kinds=(DraftKind.PACK,), pack=ref), n=12)
    assert [answer.text for answer in gated] == [answer.text for answer in plain]
    assert sums(gated, DraftKind.PACK)[0] < 0.1 * sum(answer.counts.completion_tokens for answer in gated)
    always = answered(engine, tiny, Drafting(kinds=(DraftKind.PACK,), pack=ref, is_gated=False), n=2)
    assert sums(always, DraftKind.PACK)[0] > 50
    assert [answer.text for answer in always] == [answer.text for answer in plain[:2]]


def test_a_pack_of_another_tokenizer_is_refused(
    engine: TorchEngine, tiny: CausalBase, pack: RecipePack, tmp_path: Path
) -> None:
    foreign = ref_of(dataclasses.replace(pack, tokenizer_sha256="0" * 64), tmp_path)
    with pytest.raises(Rejected) as caught:
        answered(engine, tiny, Drafting(kinds=(DraftKind.PACK,), pack=foreign), n=1)
    assert caught.value.code == "bad_pack"


def row_of(batch: BatchDrafter, base: CausalBase, drafting: Drafting | None, *, tenant: str = "t") -> SmallRow:
    prompt = tuple(prompts(base, 1)[0])
    request = GenerationRequest(id="", prompt=prompt, max_new_tokens=40, tenant=tenant, drafting=drafting)
    row = SmallRow(request=request, tokens=list(prompt), limit=len(prompt) + 40)
    batch.open(row)
    return row


def test_a_request_that_wants_no_drafts_has_no_drafter(tiny: CausalBase) -> None:
    batch = open_drafts(tiny)
    assert row_of(batch, tiny, None).drafter is None
    assert row_of(batch, tiny, Drafting(kinds=())).drafter is None
    assert row_of(batch, tiny, Drafting(kinds=(DraftKind.MODEL,))).drafter is None  # there is none here


def test_what_is_known_of_a_tenants_drafts_is_not_anothers(tiny: CausalBase) -> None:
    batch = open_drafts(tiny)
    drafting = Drafting(kinds=(DraftKind.PROMPT,))
    rows = [row_of(batch, tiny, drafting, tenant=tenant) for tenant in ("a", "a", "b")]
    controllers = [row.drafter.controller for row in rows if row.drafter is not None]
    assert controllers[0] is controllers[1]
    assert controllers[0] is not controllers[2]


def test_tokens_that_came_unasked_are_caught_up_with(tiny: CausalBase) -> None:
    """A row of which the engine kept several tokens without a draft proposes as if it had been asked each time."""
    batch = open_drafts(tiny)
    drafting = Drafting(kinds=(DraftKind.PROMPT,), is_gated=False)
    asked, unasked = row_of(batch, tiny, drafting), row_of(batch, tiny, drafting)
    answer = [*asked.request.prompt[5:25]]
    for token in answer:
        batch.propose([asked])
        asked.draft = []
        asked.tokens.append(token)
        batch.observe_accepted(asked, [token])
    unasked.tokens += answer
    assert batch.propose([asked]) == batch.propose([unasked]) != [[]]


def test_answers_and_what_was_tried_are_told_once(tiny: CausalBase, pack: RecipePack, tmp_path: Path) -> None:
    batch = open_drafts(tiny)
    ref = ref_of(pack, tmp_path)
    row = row_of(batch, tiny, Drafting(kinds=(DraftKind.PACK,), pack=ref, is_gated=False, learns=True))
    answer = [*pack.recipes[0].run, 5, 6, 7]
    while len(row.tokens) < len(row.request.prompt) + len(answer):
        (row.draft,) = batch.propose([row])
        kept = verified(row.draft, answer[len(row.tokens) - len(row.request.prompt) :])
        row.tokens += kept
        batch.observe_accepted(row, kept)
    batch.close(row)
    ((tenant, told),) = batch.feedback()
    assert (tenant, told.pack_sha256, told.n_answers, told.n_tokens) == ("t", ref.key, 1, len(answer))
    assert {one["id"] for one in told.tried} <= {recipe.id for recipe in pack.recipes}
    assert told.learned == [{"tokens": answer}]
    assert batch.feedback() == []


def test_drafts_are_asked_for_twice_where_a_step_failed(tiny: CausalBase) -> None:
    batch = open_drafts(tiny)
    row = row_of(batch, tiny, Drafting(kinds=(DraftKind.PROMPT,), is_gated=False))
    row.tokens += row.request.prompt[4:12]
    assert batch.propose([row]) == batch.propose([row]) != [[]]
