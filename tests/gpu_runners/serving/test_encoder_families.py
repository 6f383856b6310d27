"""Students whose encoder is no plain BERT, which torch computes, behind `kolm serve`'s server and behind the one that
answers for deployments: loaded from their signed files by the code that loads every other student."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.domain.answers.json_schemas import validator
from backend.domain.artifact.kolm_verify import read_kolm
from backend.domain.jobs.runner_jobs import DistillJob, TrainOptions
from gpu_runners.artifacts.encoder_student import EncoderModel
from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.artifacts.loader import Loader
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.distill.label.train import distill
from gpu_runners.distill.spans.train import distill_spans
from gpu_runners.models.bases import open_base
from gpu_runners.models.encoder_runtimes import TorchRuntime, load_runtime
from gpu_runners.serving.label_server import ArtifactServer
from tests.gpu_runners.serving.running_server import running_server
from tests.gpu_runners.serving.small_adapters import ALICE, grant_for
from tests.gpu_runners.serving.small_backend import small_backend
from tests.gpu_runners.small_encoders import make_encoder
from tests.gpu_runners.small_spans import SCHEMA, TrainedSpans, span_job, span_kolm, span_pairs
from tests.gpu_runners.small_task import LABELS, Trained, jsonl, kolm_of, task_rows

FAMILIES = (
    "modernbert",
    "mpnet",
    *(pytest.param(family, marks=pytest.mark.nightly) for family in ("nomic_bert", "electra")),
)
TEXTS = [*(text for text, _ in span_pairs(12)), "", "😀 buy 3 kites in Züriçh", "please cancel 4 lamps and " * 30]


def spans_on(base_dir: Path, family: str) -> bytes:
    """A signed span student of ALICE, trained on a random encoder of the family."""
    base = open_base(make_encoder(base_dir / "encoder", family).name, base_dir=base_dir)
    assert isinstance(load_runtime(base), TorchRuntime)
    job, data, plan = span_job(span_pairs(40), base=base.name, epochs=4)
    blob, result = distill_spans(job, data, base=base)
    return span_kolm(TrainedSpans(job=job, dataset=data, plan=plan, blob=blob, result=result), tenant=ALICE)


def labels_on(base_dir: Path, family: str) -> bytes:
    """A signed label student of ALICE, trained on a random encoder of the family."""
    base = open_base(make_encoder(base_dir / "encoder", family).name, base_dir=base_dir)
    data = jsonl(task_rows(6))
    train = TrainOptions(epochs=1, precision="fp32", max_tokens=64).to_json()
    job = DistillJob(base_model=base.name, labels=LABELS, dataset_sha256=hashlib.sha256(data).hexdigest(), train=train)
    blob, result = distill(job, data, base=base)
    return kolm_of(Trained(job=job, dataset=data, blob=blob, result=result), tenant=ALICE)


def loaded(data: bytes, base_dir: Path) -> EncoderModel:
    model = Loader(keyring=None, base_dir=base_dir).model_of(read_kolm(data))
    assert isinstance(model, SpanModel | LabelModel)
    return model


def plain(rows: list[Any]) -> list[dict[str, Any]]:
    """Rows without their times, with confidences to four places: texts that are read together are padded."""
    return [{name: _rounded(value) for name, value in dict(row).items() if name != "latency_us"} for row in rows]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, list):
        return [{name: one[name] for name in ("path", "start", "end")} for one in value]
    return value


@contextmanager
def serve(data: bytes, base_dir: Path) -> Iterator[str]:
    """`kolm serve` of the file, in this process; gives its address."""
    kolm = read_kolm(data)
    with ArtifactServer(("127.0.0.1", 0), model=loaded(data, base_dir), manifest=kolm.manifest) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("family", FAMILIES)
def test_kolm_serve_answers_by_spans_of_an_encoder_that_torch_computes(tmp_path: Path, family: str) -> None:
    data = spans_on(tmp_path, family)
    wanted, fits = plain(loaded(data, tmp_path).predict(TEXTS[:8])), validator(SCHEMA)
    with serve(data, tmp_path) as url:
        outputs = httpx.post(f"{url}/run", json={"input": TEXTS}, timeout=60).json()["outputs"]
        assert plain(outputs)[:8] == wanted
        alone = httpx.post(f"{url}/run", json={"input": TEXTS[0]}, timeout=60).json()["outputs"]
        assert plain(alone) == wanted[:1]
        body = {"model": "mails", "messages": [{"role": "user", "content": TEXTS[0]}]}
        chat = httpx.post(f"{url}/chat/completions", json=body, timeout=60).json()
    assert chat["choices"][0]["message"]["content"] == wanted[0]["output"]
    assert plain([chat["kolm"]])[0]["fields"] == wanted[0]["fields"]
    for text, row in zip(TEXTS, outputs, strict=True):
        assert fits(json.loads(row["output"])) == []
        assert all(one["start"] is None or 0 <= one["start"] <= one["end"] <= len(text) for one in row["fields"])


@pytest.mark.parametrize("make", [spans_on, labels_on])
def test_the_server_of_deployments_answers_with_a_student_on_modernbert(tmp_path: Path, make: Any) -> None:
    bases = tmp_path / "bases"
    bases.mkdir()
    data = make(bases, "modernbert")
    (wanted,) = loaded(data, bases).predict(TEXTS[:1])
    grant = grant_for(data)
    with small_backend() as backend, running_server(tmp_path, backend.url, bases) as running:
        backend.kolms[grant.sha256] = data
        backend.wait_until(lambda: backend.hellos)
        (listed,) = (one for one in backend.hellos[0].bases if one["id"] == "encoder")
        assert listed["students"] == ["label", "spans"]
        answer = running.ask(grant, TEXTS[0])
        assert answer.status_code == 200, answer.text
        backend.wait_until(lambda: backend.rows)
    body = answer.json()
    assert body["choices"][0]["message"]["content"] == (wanted.get("output") or wanted.get("label"))
    beside = {name: value for name, value in plain([wanted])[0].items() if name in ("confidence", "fields")}
    assert plain([body["kolm"]]) == [beside]
    (row,) = backend.rows.values()
    assert (row.prompt_tokens > 0, row.completion_tokens) == (True, 0)
