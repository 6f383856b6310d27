"""ONNX Runtime behind `kolm run`: the numbers of numpy, where it pays, unless the engine is pinned or not installed."""

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from backend.domain.artifact.kolm_verify import Kolm, read_kolm
from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.artifacts.loader import Loader
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.config import BadSetting, EncoderEngine, encoder_engine
from gpu_runners.errors import JobFailed
from gpu_runners.models.bases import Base, open_base
from gpu_runners.models.encoder_runtimes import NumpyRuntime, TorchRuntime, load_runtime
from gpu_runners.models.label_adapter import Adapter, AdapterConfig, Head, from_bytes
from gpu_runners.models.onnx.runtime import ONNX_FROM, OnnxRuntime, answering_runtime
from tests.backend.domain.artifact.tiny_kolm import keyring
from tests.gpu_runners.exports.students import random_label_kolm, random_span_kolm
from tests.gpu_runners.small_encoders import make_encoder
from tests.gpu_runners.small_spans import TrainedSpans, span_kolm, span_pairs
from tests.gpu_runners.small_task import Trained, kolm_of, task_rows

pytest.importorskip("onnxruntime", reason="onnxruntime is of the extra `runner`")
pytest.importorskip("onnx", reason="onnx is of the extra `runner`")

ROOT = Path(__file__).parents[4]
TEXTS = [
    "where is my parcel",
    "x",
    "",
    "Wo bleibt mein Paket? Die Größe",
    "荷物はどこですか。返品",
    "refund the broken part " * 30,
    "  spaced   out ",
]


def label_models(kolm: Kolm, base: Base) -> list[LabelModel]:
    """The artifact in numpy and in ONNX Runtime."""
    return [LabelModel.from_members(kolm.members, base=base, runtime=one(base)) for one in (NumpyRuntime, OnnxRuntime)]


def span_models(kolm: Kolm, base: Base) -> list[SpanModel]:
    return [SpanModel.from_members(kolm.members, base=base, runtime=one(base)) for one in (NumpyRuntime, OnnxRuntime)]


def assert_same_logits(one: SpanModel, other: SpanModel, texts: Sequence[str]) -> None:
    read = one.tokenizer.read(texts)
    for left, right in zip(one.forward.logits(read), other.forward.logits(read), strict=True):
        assert left.keys() == right.keys()
        for name, logits in left.items():
            np.testing.assert_allclose(right[name], logits, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "pooling"),
    [
        ("bert", "mean"),
        ("bert", "cls"),
        ("bert", "max"),
        ("bert", "lasttoken"),
        ("bert", "weightedmean"),
        ("roberta", "mean"),
        ("xlm-roberta", "cls"),
    ],
)
def test_a_label_student_has_the_logits_that_numpy_computes(tmp_path: Path, family: str, pooling: str) -> None:
    kolm = read_kolm(random_label_kolm(tmp_path, family, pooling))
    own, fast = label_models(kolm, open_base("encoder", base_dir=tmp_path))
    assert (own.engine_name, fast.engine_name) == ("numpy", "onnx")
    rows = own.tokenizer.ids(TEXTS)
    np.testing.assert_allclose(fast.engine.logits(rows), own.engine.logits(rows), atol=1e-4)
    for row in rows:
        np.testing.assert_allclose(fast.engine.logits([row]), own.engine.logits([row]), atol=1e-4)
        assert np.array_equal(fast.engine.logits([row]), fast.engine.logits([row]))


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_a_span_student_has_the_logits_that_numpy_computes_over_several_windows(tmp_path: Path, family: str) -> None:
    kolm = read_kolm(random_span_kolm(tmp_path, family))
    own, fast = span_models(kolm, open_base("encoder", base_dir=tmp_path))
    assert (own.engine_name, fast.engine_name) == ("numpy", "onnx")
    assert max(len(one.windows) for one in own.tokenizer.read(TEXTS)) > 2
    assert_same_logits(own, fast, TEXTS)
    for text in TEXTS:
        assert_same_logits(own, fast, [text])


def test_a_trained_label_student_gives_the_same_answers_alone_and_in_batches(trained: Trained, base: Base) -> None:
    own, fast = label_models(read_kolm(kolm_of(trained)), base)
    texts = [*TEXTS, *(row["input"] for row in task_rows(25, start=100))]
    rows = own.predict(texts)
    for others in (fast.predict(texts), [fast.predict([text])[0] for text in texts]):
        assert [row["label"] for row in others] == [row["label"] for row in rows]
        assert all(abs(a["confidence"] - b["confidence"]) < 1e-4 for a, b in zip(rows, others, strict=True))


def test_a_trained_span_student_gives_the_same_answers_alone_and_in_batches(
    trained_spans: TrainedSpans, base: Base
) -> None:
    own, fast = span_models(read_kolm(span_kolm(trained_spans)), base)
    texts = [text for text, _ in span_pairs(60)] + ["please buy 3 pens in New York and " * 40]
    rows = own.predict(texts)
    for others in (fast.predict(texts), [fast.predict([text])[0] for text in texts]):
        assert [row["output"] for row in others] == [row["output"] for row in rows]
    assert_same_logits(own, fast, texts)


def test_students_of_a_base_share_its_tables_and_leave_it_as_it_was(trained: Trained, base: Base) -> None:
    runtime = OnnxRuntime(base)
    adapter, config = from_bytes(trained.blob), AdapterConfig.from_json(trained.result.adapter_config)
    rows = [[101, 2073, 102], [101, 102]]
    before = runtime.embed(rows, pooling=config.pooling)
    one, other = (runtime.body(adapter.lora, rank=config.rank, alpha=config.alpha) for _ in range(2))
    table = "embeddings.word_embeddings.weight"
    assert one._tables.weights[table] is other._tables.weights[table] is runtime._bert.weights[table]
    assert not any(name.startswith("encoder.") for name in one._tables.weights)
    assert np.array_equal(runtime.embed(rows, pooling=config.pooling), before)


def test_threads_that_share_a_student_get_what_one_gets(trained: Trained, base: Base) -> None:
    _, fast = label_models(read_kolm(kolm_of(trained)), base)
    rows = fast.tokenizer.ids([row["input"] for row in task_rows(10)])
    wanted = [fast.engine.logits([row]) for row in rows]
    with ThreadPoolExecutor(4) as threads:
        assert all(map(np.array_equal, threads.map(lambda row: fast.engine.logits([row]), rows), wanted))


def test_an_adapter_that_does_not_fit_the_base_is_refused(trained: Trained, base: Base) -> None:
    adapter, config = from_bytes(trained.blob), AdapterConfig.from_json(trained.result.adapter_config)
    pair = next(iter(adapter.lora.values()))
    narrow = Head(weight=np.zeros((4, 7), dtype=np.float32), bias=np.zeros(4, dtype=np.float32))
    for head, lora, message in (
        (adapter.head, {"encoder.layer.9.output.dense": pair}, "does not fit"),
        (narrow, adapter.lora, "wide"),
    ):
        with pytest.raises(JobFailed, match=message):
            OnnxRuntime(base).engine(Adapter(lora=lora, head=head, baseline=adapter.baseline), config)


@pytest.mark.parametrize(
    ("setting", "n_texts", "kind"),
    [
        ("", 1, NumpyRuntime),
        ("", ONNX_FROM - 1, NumpyRuntime),
        ("", ONNX_FROM, OnnxRuntime),
        ("", None, OnnxRuntime),
        ("auto", None, OnnxRuntime),
        ("numpy", None, NumpyRuntime),
        ("onnx", 1, OnnxRuntime),
    ],
)
def test_many_texts_are_answered_by_onnx_runtime_unless_the_engine_is_pinned(
    base: Base, monkeypatch: pytest.MonkeyPatch, setting: str, n_texts: int | None, kind: type
) -> None:
    monkeypatch.setenv("KOLM_ENCODER_ENGINE", setting)
    assert type(answering_runtime(base, n_texts=n_texts)) is kind
    assert type(load_runtime(base)) is NumpyRuntime  # evaluates and exports, whatever is set


def test_a_base_of_another_architecture_goes_through_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_encoder(tmp_path / "encoder", "modernbert")
    monkeypatch.setenv("KOLM_ENCODER_ENGINE", "onnx")
    assert type(answering_runtime(open_base("encoder", base_dir=tmp_path))) is TorchRuntime


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_numpy_answers_where_a_package_is_not_installed(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # what import says of a package that is not there
    model = Loader(keyring=None, base_dir=None).model_of(read_kolm(kolm_of(trained)))
    assert isinstance(model, LabelModel)
    assert model.engine_name == "numpy"
    assert model.predict(["where is my parcel 3 number 9"])[0]["label"] == "delivery"
    with pytest.raises(BadSetting, match=f"{missing} is not here: install kolm with its extra 'runner'"):
        encoder_engine({"KOLM_ENCODER_ENGINE": "onnx"})


def test_a_setting_that_names_no_engine_is_refused() -> None:
    assert encoder_engine({"KOLM_ENCODER_ENGINE": " "}) is EncoderEngine.AUTO
    with pytest.raises(BadSetting, match="one of numpy, auto, onnx"):
        encoder_engine({"KOLM_ENCODER_ENGINE": "cuda"})


def test_kolm_run_loads_onnx_runtime_for_many_texts_alone_and_answers_alike(tmp_path: Path, trained: Trained) -> None:
    (tmp_path / "a.kolm").write_bytes(kolm_of(trained))
    (tmp_path / "keyring.json").write_text(json.dumps(keyring()))
    texts = [row["input"] for row in task_rows(ONNX_FROM // 4)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"input": text}) + "\n" for text in texts))
    script = (
        "import sys\n"
        "from gpu_runners.cli.main import main\n"
        "code = main(['run', 'a.kolm', *sys.argv[1:]])\n"
        "print(code, 'onnxruntime' in sys.modules, 'torch' in sys.modules)\n"
    )
    environment = {"PYTHONPATH": str(ROOT), "KOLM_KEYRING": "keyring.json"}

    def run(*arguments: str, **more: str) -> list[str]:
        command = [sys.executable, "-c", script, *arguments]
        done = subprocess.run(
            command, env=environment | more, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.splitlines()

    *lone, status = run(texts[0], "--json")
    assert status == "0 False False"
    *many, status = run("--jsonl", "in.jsonl")
    assert status == "0 True False"
    *pinned, status = run("--jsonl", "in.jsonl", KOLM_ENCODER_ENGINE="numpy")
    assert status == "0 False False"
    labels, own = ([json.loads(line)["label"] for line in lines] for lines in (many, pinned))
    assert labels == own
    assert json.loads(lone[0])["label"] == labels[0]
    refused = subprocess.run(
        [sys.executable, "-c", script, "x"],
        env=environment | {"KOLM_ENCODER_ENGINE": "cuda"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert refused.stderr.strip().endswith("KOLM_ENCODER_ENGINE is 'cuda'; use one of numpy, auto, onnx.")
