"""`kolm export --to onnx` of a span student: the logits of `SpanForward`, and runners that need no kolm."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import processors

from gpu_runners.errors import ExportRefused
from gpu_runners.exports.folder import Original
from gpu_runners.exports.onnx.runners import JAVASCRIPT, Placing, placing_of
from gpu_runners.exports.span_student import SpanStudent, open_span_student
from gpu_runners.exports.to_onnx import export_onnx, write_model
from gpu_runners.exports.to_sentence_transformers import export_sentence_transformers
from gpu_runners.models.bases import open_base
from gpu_runners.models.encoder_tokens import bare_tokenizer
from gpu_runners.models.spans.tokens import SpanTokens
from tests.backend.domain.extraction.test_elements import SCHEMA as LINES_SCHEMA
from tests.backend.domain.extraction.test_elements import unit_pairs
from tests.gpu_runners.exports.students import original_of, random_span_kolm
from tests.gpu_runners.small_encoders import make_encoder
from tests.gpu_runners.small_packs import json_rules
from tests.gpu_runners.small_spans import SCHEMA, TrainedSpans, span_kolm, span_pairs

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is of the extra `runner`")
onnx = pytest.importorskip("onnx", reason="onnx is of the extra `runner`")

N_INPUTS = 200
AWKWARD = [
    "",
    "x",
    "  please   buy 3 Größe rugs, in\tNew York ",
    "buy 荷物 3 red cups 🙂 😀😀 in Lima",
    'cancel 4 "oak chairs" (quickly!) in Zürich\u0301',
    "buy 17 pens and 3 kites in Rome " * 80,
    "q" * 120 + " in Oslo",
]
Fields = set[tuple[str, int, int]]


@pytest.fixture(scope="module")
def inputs() -> list[str]:
    return [*AWKWARD, *(text for text, _ in span_pairs(N_INPUTS))][:N_INPUTS]


@pytest.fixture(scope="module")
def original(trained_spans: TrainedSpans) -> Original:
    return original_of(span_kolm(trained_spans))


@pytest.fixture(scope="module")
def student(original: Original) -> SpanStudent:
    return open_span_student(original.kolm, base_dir=None)


@pytest.fixture(scope="module")
def folder(original: Original, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "mails-onnx"
    export_onnx(original, out, base_dir=None, int8=False)
    return out


def session(model: Any) -> Any:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def first_windows(student: SpanStudent, texts: list[str]) -> list[SpanTokens]:
    """The texts' tokens as if none of them went on after its first window."""
    read = student.model.tokenizer.read(texts)
    cut = [one.windows[0] for one in read]
    return [
        SpanTokens(offsets=one.offsets[: window.tokens.stop], glued=one.glued[: window.tokens.stop], windows=(window,))
        for one, window in zip(read, cut, strict=True)
    ]


def graph_logits(run: Any, tokens: list[SpanTokens], *, at_once: int, pad_id: int) -> list[dict[str, Any]]:
    """Logits of the graph in padded batches, those of token heads cut to the tokens of the text."""
    names = [output.name for output in run.get_outputs()]
    out = []
    for start in range(0, len(tokens), at_once):
        chosen = [one.windows[0] for one in tokens[start : start + at_once]]
        width = max(len(window.ids) for window in chosen)
        ids = np.array([[*window.ids, *[pad_id] * (width - len(window.ids))] for window in chosen])
        mask = np.array([[1] * len(window.ids) + [0] * (width - len(window.ids)) for window in chosen])
        inputs = {"input_ids": ids, "attention_mask": mask}
        if any(one.name == "token_kinds" for one in run.get_inputs()):
            kinds = [[*window.kinds, *[0] * (width - len(window.kinds))] for window in chosen]
            inputs["token_kinds"] = np.array(kinds)
        values = run.run(names, inputs)
        for row, window in enumerate(chosen):
            own = slice(window.first, window.first + len(window.tokens))
            pairs = zip(names, values, strict=True)
            out.append({name: value[row] if value.ndim == 2 else value[row, own] for name, value in pairs})
    return out


def largest_difference(ours: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> float:
    assert all(one.keys() == other.keys() for one, other in zip(ours, wanted, strict=True))
    pairs = [(one[name], other[name]) for one, other in zip(ours, wanted, strict=True) for name in one]
    assert all(one.shape == other.shape for one, other in pairs)
    return max(float(np.abs(one - other).max(initial=0)) for one, other in pairs)


@pytest.mark.parametrize("at_once", [1, 16])
def test_the_graph_gives_the_logits_of_the_artifact(
    folder: Path, student: SpanStudent, inputs: list[str], at_once: int
) -> None:
    tokens = first_windows(student, inputs)
    ours = graph_logits(session(folder / "model.onnx"), tokens, at_once=at_once, pad_id=0)
    assert set(ours[0]) == {"tags.0", "opens", "classes.0", "classes.4"}
    assert largest_difference(ours, list(student.model.forward.logits(tokens))) < 1e-4


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_every_family_prefix_and_window_is_the_artifacts(tmp_path: Path, family: str) -> None:
    student = open_span_student(original_of(random_span_kolm(tmp_path, family)).kolm, base_dir=tmp_path)
    write_model(student, tmp_path / "model.onnx", artifact_sha256="0" * 64, int8=False)
    tokens = first_windows(student, AWKWARD)
    assert max(len(one.windows[0].ids) for one in tokens) == student.reading.max_length == 34
    pad_id = student.merged_bert().pad_id
    ours = graph_logits(session(tmp_path / "model.onnx"), tokens, at_once=len(AWKWARD), pad_id=pad_id)
    assert largest_difference(ours, list(student.model.forward.logits(tokens))) < 1e-4


def test_the_classes_of_elements_are_those_of_the_artifact_and_the_runner_prints_them(tmp_path: Path) -> None:
    texts = [text for text, _ in unit_pairs(12)]
    made = original_of(random_span_kolm(tmp_path, "bert", schema=LINES_SCHEMA, examples=unit_pairs(40)))
    student = open_span_student(made.kolm, base_dir=tmp_path)
    export_onnx(made, tmp_path / "out", base_dir=tmp_path, int8=False)
    tokens = first_windows(student, texts)
    ours = graph_logits(session(tmp_path / "out" / "model.onnx"), tokens, at_once=4, pad_id=0)
    plan = student.model.assembler.plan
    each = {plan.rules[i].path: i for i in plan.element_rules()}
    assert set(each) == {"/lines/*/unit", "/lines/*/gift"}
    assert {f"elements.{i}" for i in each.values()} < set(ours[0])
    assert largest_difference(ours, list(student.model.forward.logits(tokens))) < 1e-4
    n_spans = 0
    for logits, one, line in zip(ours, tokens, run_python(tmp_path / "out", texts)[0], strict=True):
        first = {start: number for number, (start, _) in reversed(list(enumerate(one.offsets)))}
        for span in line["spans"]:
            rows = {path: logits[f"elements.{i}"][first[span["start"]]] for path, i in each.items()}
            assert span["classes"] == {path: plan.rules[each[path]].choices[row.argmax()] for path, row in rows.items()}
            n_spans += 1
    assert n_spans > 0


def test_int8_is_a_quarter_of_the_size_and_leaves_the_heads_as_they_are(
    original: Original, student: SpanStudent, folder: Path, inputs: list[str], tmp_path: Path
) -> None:
    export_onnx(original, tmp_path / "small", base_dir=None, int8=True)
    small = tmp_path / "small" / "model.onnx"
    assert small.stat().st_size < 0.3 * (folder / "model.onnx").stat().st_size
    kinds = {one.name: one.data_type for one in onnx.load(small).graph.initializer}
    assert all(kinds[f"{name}.weight.T"] == onnx.TensorProto.FLOAT for name in student.adapter.heads)
    tokens = first_windows(student, inputs)
    ours = graph_logits(session(small), tokens, at_once=1, pad_id=0)
    wanted = student.model.forward.logits(tokens)
    same = [one["tags.0"].argmax(axis=1) == two["tags.0"].argmax(axis=1) for one, two in zip(ours, wanted, strict=True)]
    assert np.concatenate(same).mean() > 0.97
    assert json.loads((tmp_path / "small" / "export.json").read_text())["precision"] == "int8"


def test_the_folder_has_what_the_logits_are_read_with(folder: Path, original: Original) -> None:
    for name in ("extraction.json", "calibration.json"):
        assert (folder / name).read_bytes() == original.kolm.members[name]
    assert json.loads((folder / "schema.json").read_text()) == SCHEMA
    assert not (folder / "labels.json").exists()


def run_python(folder: Path, texts: list[str]) -> tuple[list[dict[str, Any]], str]:
    """The lines of run.py, and the modules that it loaded."""
    path = f"sys.path.insert(0, {str(folder)!r})"  # as python puts it there for a program that is run by its path
    script = f"import runpy, sys; {path}; runpy.run_path(sys.argv.pop(1)); print(sorted(sys.modules))"
    command = [sys.executable, "-I", "-c", script, str(folder / "run.py"), *texts]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder.parent)
    *lines, modules = done.stdout.splitlines()
    return [json.loads(line) for line in lines], modules


def node_modules() -> str:
    packages = os.environ.get("KOLM_NODE_MODULES")
    if packages is None or shutil.which("node") is None:
        pytest.skip("KOLM_NODE_MODULES names no folder with onnxruntime-node and @huggingface/tokenizers")
    return packages


def run_javascript(folder: Path, texts: list[str]) -> list[dict[str, Any]]:
    packages = node_modules()
    if not (folder.parent / "node_modules").exists():
        (folder.parent / "node_modules").symlink_to(packages)
    done = subprocess.run(["node", folder / "run.mjs", *texts], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def generic(path: str) -> str:
    """The path with stars for the numbers of elements."""
    return "/".join("*" if part.isdecimal() else part for part in path.split("/"))


def test_the_python_runner_reads_the_spans_of_kolm_run_without_kolm(
    folder: Path, student: SpanStudent, inputs: list[str]
) -> None:
    lines, modules = run_python(folder, inputs)
    assert "'gpu_runners'" not in modules
    assert "'torch'" not in modules
    easy = range(len(AWKWARD), N_INPUTS)  # one window, no leaf read twice
    for text, line in zip(inputs, lines, strict=True):
        assert all(text[span["start"] : span["end"]] == span["text"] for span in line["spans"])
    same = []
    for i, row in zip(easy, student.model.predict([inputs[i] for i in easy]), strict=True):
        wanted = {(generic(f["path"]), f["start"], f["end"]) for f in row["fields"] if f["start"] is not None}
        ours: Fields = {(span["path"], span["start"], span["end"]) for span in lines[i]["spans"]}
        answer = json.loads(row["output"])
        classes = {"/action": answer["action"], "/tags/*": answer.get("tags", [])}
        n_lines = sum(span.get("opens", False) for span in lines[i]["spans"])
        same.append((ours, lines[i]["classes"], n_lines) == (wanted, classes, len(answer["lines"])))
    assert np.mean(same) > 0.99


def test_the_javascript_runner_prints_what_the_python_runner_does(folder: Path, inputs: list[str]) -> None:
    ours = run_javascript(folder, inputs)
    assert ours == run_python(folder, inputs)[0]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_runners_agree_on_every_family_whose_tokens_javascript_places(tmp_path: Path, family: str) -> None:
    original = original_of(random_span_kolm(tmp_path, family))
    export_onnx(original, tmp_path / "out", base_dir=tmp_path, int8=False)
    assert run_javascript(tmp_path / "out", AWKWARD) == run_python(tmp_path / "out", AWKWARD)[0]


_PLACING = """
import { readFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";
import { placesOf } from "./places.mjs";
const { described, placing, texts } = JSON.parse(readFileSync(0, "utf8"));
const tokenizer = new Tokenizer(described, { tokenizer_class: "PreTrainedTokenizerFast" });
const tokens = (text) => tokenizer.encode(text, { add_special_tokens: false }).tokens;
const way = { placing, tokenizer, unknown: described.model.unk_token };
console.log(JSON.stringify(texts.map((text) => placesOf(text, tokens(text), way))));
"""


def roberta_ends(*, prefix: bool) -> Any:
    return processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=prefix)


@pytest.mark.parametrize(
    ("family", "ends", "placing"),
    [
        ("bert", None, Placing.WORD_PIECE),
        ("roberta", None, Placing.BYTES),
        ("roberta", roberta_ends(prefix=False), Placing.BYTES_TRIMMED),
        ("roberta", roberta_ends(prefix=True), Placing.BYTES_TRIMMED_BUT_FIRST),
        ("roberta", processors.ByteLevel(trim_offsets=False), Placing.BYTES),
    ],
)
def test_javascript_places_tokens_where_python_does(tmp_path: Path, family: str, ends: Any, placing: Placing) -> None:
    tokenizer = bare_tokenizer(open_base(make_encoder(tmp_path / "encoder", family).name, base_dir=tmp_path))
    if ends is not None:
        tokenizer.post_processor = ends
    texts = [*AWKWARD, " x  y", " \t荷物", "  ", " ", "¿İı? ñandú [SEP] 각ﬁ½ <mask> "]
    assert placing_of(tokenizer.to_str()) is placing
    program = tmp_path / "run.mjs"
    program.write_text(_PLACING, "utf-8")
    shutil.copy(JAVASCRIPT / "places.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(node_modules())
    asked = json.dumps({"described": json.loads(tokenizer.to_str()), "placing": placing, "texts": texts})
    done = subprocess.run(["node", program], input=asked, capture_output=True, text=True, check=True)
    wanted = [tokenizer.encode(text, add_special_tokens=False).offsets for text in texts]
    assert json.loads(done.stdout) == json.loads(json.dumps(wanted))


def test_a_tokenizer_that_javascript_cannot_place_leaves_its_runner_out(tmp_path: Path) -> None:
    export_onnx(original_of(random_span_kolm(tmp_path, "xlm-roberta")), tmp_path / "out", base_dir=tmp_path, int8=False)
    assert (tmp_path / "out" / "run.py").exists()
    assert not (tmp_path / "out" / "run.mjs").exists()


def test_rules_go_along_as_they_are_and_answer_first_in_javascript(trained_spans: TrainedSpans, tmp_path: Path) -> None:
    rules = json_rules("tea")
    export_onnx(original_of(span_kolm(trained_spans, rules=rules)), tmp_path / "out", base_dir=None, int8=False)
    assert (tmp_path / "out" / "rules.json").read_bytes() == rules
    assert "./rules.mjs" in (tmp_path / "out" / "run.mjs").read_text()
    (line,) = run_javascript(tmp_path / "out", ["a small tea"])
    assert line == {"rule": {"n": 3, "size": "small"}}


def test_an_encoder_of_another_kind_is_refused_with_what_to_use(tmp_path: Path) -> None:
    original = original_of(random_span_kolm(tmp_path, "modernbert"))
    with pytest.raises(ExportRefused, match=r"'modernbert'.*--to peft"):
        export_onnx(original, tmp_path / "out", base_dir=tmp_path, int8=False)
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"]


def test_sentence_transformers_is_refused_with_what_to_use(original: Original, tmp_path: Path) -> None:
    with pytest.raises(ExportRefused, match=r"no sentence vectors: use --to onnx"):
        export_sentence_transformers(original, tmp_path / "out", base_dir=None)
