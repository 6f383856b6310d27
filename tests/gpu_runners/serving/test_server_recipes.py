"""Packs and rules in the server as a process: answers stay what they were, and what was found out is told."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.domain.recipes.feedback import checked_feedback
from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.pack import BEGIN, Recipe, RecipePack
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.speculation.vocabulary import observed_of, token_texts
from tests.gpu_runners.serving.running_server import RunningServer, running_server
from tests.gpu_runners.serving.small_adapters import ALICE, BOB, attention_shapes, grant_for, kolm_of
from tests.gpu_runners.serving.small_backend import SmallBackend, small_backend
from tests.gpu_runners.small_packs import json_rules, spec_of
from tests.tiny_bases import TINY, tiny_bases  # noqa: F401

TEXTS = [f"please send {n} {what} to {who}" for n, what, who in [(3, "lamps", "Rhea"), (4, "chairs", "Bonn")]]
SCHEMA = {
    "type": "object",
    "properties": {
        "action": {"enum": ["send", "return"]},
        "product": {"type": "string", "maxLength": 8},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["action", "product", "count"],
}
PROMPT = {"system": "Read the order.", "answer": {"type": "json", "schema": SCHEMA}, "max_new_tokens": 60}


@pytest.fixture(scope="module")
def base(tiny_bases: Path) -> CausalBase:  # noqa: F811
    return open_causal_base(TINY, base_dir=tiny_bases)


def small(base: CausalBase, *, tenant: str = ALICE, seed: int = 0, **beside: bytes) -> bytes:
    """The base with an adapter that changes nothing, so that answers are those of a trained model."""
    members = {f"{name}.json": data for name, data in beside.items()}
    shapes = attention_shapes(base)
    return kolm_of(base, seed=seed, tenant=tenant, shapes=shapes, scale=0.0, prompt=PROMPT, beside=members)


def honest(base: CausalBase, answers: list[str]) -> bytes:
    observed = [observed_of(base, text, [text]) for text in answers * 3]
    options = PackOptions(max_bytes=20_000)
    pack = build_pack(
        observed,
        token_texts(base),
        tokenizer_sha256=base.tokenizer_sha256,
        base=base.name,
        options=options,
        end_ids=base.eos_ids,
    )
    return with_sources(pack, "pack")


def hostile(base: CausalBase) -> bytes:
    """Whatever came, it goes on with something else."""
    texts = token_texts(base)
    ids = [i for i, text in enumerate(texts) if text.isalpha()][:400]
    recipes = tuple(
        Recipe(
            after=(i,),
            shape="",
            run=tuple(ids[(at + 1 + k) % len(ids)] for k in range(8)),
            after_text=texts[i].decode(),
            run_text="x",
            support=99,
            agreed=99,
        )
        for at, i in enumerate(ids)
    )
    opening = Recipe(after=(BEGIN,), shape="", run=tuple(ids[:8]), after_text="", run_text="x", support=99, agreed=99)
    pack = RecipePack(
        tokenizer_sha256=base.tokenizer_sha256, base=base.name, recipes=(opening, *recipes), shape_version=""
    )
    return with_sources(pack, "pack", "prompt")


def with_sources(pack: RecipePack, *sources: str) -> bytes:
    import dataclasses

    return dataclasses.replace(pack, sources=sources).to_bytes()


@pytest.fixture(scope="module")
def backend() -> Iterator[SmallBackend]:
    with small_backend() as backend:
        yield backend


def ask(server: RunningServer, data: bytes, text: str, *, n: list[int], tenant: str = ALICE, **more: Any) -> Any:
    n.append(len(n))
    grant = grant_for(data, tenant=tenant, request=f"req-{len(n)}")
    response = server.ask(grant, text, max_tokens=60, **more)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.nightly
def test_packs_change_no_answer_rules_come_first_and_what_was_found_out_is_told(
    backend: SmallBackend, base: CausalBase, tmp_path: Path
) -> None:
    plain, asked = small(base), list[int]()
    backend.kolms = {grant_for(plain).sha256: plain}
    with running_server(tmp_path, backend.url, base.folder.parent) as server:
        alone = [ask(server, plain, text, n=asked)["choices"] for text in TEXTS]
        answers = [choices[0]["message"]["content"] for choices in alone]
        assert [set(json.loads(answer)) for answer in answers] == [{"action", "product", "count"}] * 2
        sampled = ask(server, plain, TEXTS[0], n=asked, temperature=1.2, seed=5)["choices"]
        packed = small(
            base, seed=1, recipes=honest(base, answers), rules=json_rules("zeppelin"), spec=spec_of(learn_text=True)
        )
        wrong = small(base, seed=2, tenant=BOB, recipes=hostile(base))
        for data, tenant in ((packed, ALICE), (wrong, BOB)):
            backend.kolms[grant_for(data).sha256] = data
            for _ in range(3):
                found = [ask(server, data, text, n=asked, tenant=tenant) for text in TEXTS]
                assert [one["choices"] for one in found] == alone
            seeded = ask(server, data, TEXTS[0], n=asked, tenant=tenant, temperature=1.2, seed=5)
            assert seeded["choices"] == sampled
        usage = found[0]["usage"]["completion_tokens_details"]
        assert usage["accepted_prediction_tokens"] <= found[0]["usage"]["completion_tokens"]
        ruled = ask(server, packed, "a zeppelin", n=asked)
        assert (ruled["kolm"]["rule"], ruled["usage"]["total_tokens"]) == (0, 0)
        assert {one["path"] for one in ruled["kolm"]["fields"]} == {"/size", "/n"}
        assert server.metrics()["kolm_server_finished_rule_total"] == 1
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(30)
    reports = [checked_feedback(row.feedback) for row in backend.reports.values()]
    by_artifact = {one.artifact_sha256: one for one in reports}
    mine, his = by_artifact[grant_for(packed).sha256], by_artifact[grant_for(wrong).sha256]
    assert (mine.n_answers, his.n_answers) == (7, 7)
    assert mine.learned
    assert his.learned == [], "Bob's spec says nothing of text"
    booked = [row for row in backend.rows.values() if row.finish_reason == "rule"]
    assert len(booked) == 1
