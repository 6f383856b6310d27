"""The programs beside an exported student, in Python and JavaScript, which need no kolm: run.py and run.mjs of at most
ten lines, to be read and copied, and the modules that they import, which are files of this repository.

JavaScript's tokenizers do not say where a token stands, so places.mjs counts characters, in a way of its own for each
kind of tokenizer (`Placing`).
"""

import json
from enum import StrEnum
from pathlib import Path
from types import ModuleType

from tokenizers import Tokenizer

from backend.domain.extraction import word_boundaries
from gpu_runners.exports.onnx import spans
from gpu_runners.models.spans import kinds, viterbi

JAVASCRIPT = Path(__file__).with_name("javascript")
_BESIDE = (kinds, viterbi, word_boundaries)  # what spans.py imports

LABEL_PYTHON = """\
# python run.py TEXT ...          needs: pip install onnxruntime tokenizers
import json, pathlib, sys
import numpy, onnxruntime, tokenizers

here = pathlib.Path(__file__).parent
labels, sheet = (json.loads((here / name).read_text("utf-8")) for name in ("labels.json", "export.json"))
tokenizer = tokenizers.Tokenizer.from_file(str(here / "tokenizer.json"))
session = onnxruntime.InferenceSession(here / "model.onnx")
for text in sys.argv[1:]:
    ids = numpy.array([tokenizer.encode(sheet["reading"]["prefix"] + text).ids])
    (row,) = session.run(["probabilities"], {"input_ids": ids, "attention_mask": numpy.ones_like(ids)})[0]
    print(labels[row.argmax()], f"{row.max():.6f}", sep="\\t")
"""

SPAN_PYTHON = """\
# python run.py TEXT ...          needs: pip install numpy onnxruntime tokenizers
# Prints the classes and spans of each text as JSON. Spans are the text as it stands there: `kolm run` converts values,
# puts lists and texts together and fits the whole to the schema. Of a long text the first window alone is read.
import json, pathlib, sys
import onnxruntime
from spans import SpanReader

here = pathlib.Path(__file__).parent
reader = SpanReader(here, onnxruntime.InferenceSession(here / "model.onnx"))
for text in sys.argv[1:]:
    print(json.dumps(reader.read(text), ensure_ascii=False))
"""

LABEL_JAVASCRIPT = """\
// node run.mjs TEXT ...          needs: npm install onnxruntime-node @huggingface/tokenizers
import ort from "onnxruntime-node";
import { inputsOf, model, read } from "./reading.mjs";
$IMPORT$
const labels = read("labels.json"), session = await ort.InferenceSession.create(model);
for (const text of process.argv.slice(2)) {$RULES$
  const row = (await session.run(inputsOf(text))).probabilities.data, best = row.indexOf(Math.max(...row));
  console.log(labels[best] + "\\t" + row[best].toFixed(6));
}
"""
_LABEL_RULES = """
  const sure = answer(text); // rules answer before the model
  if (labels.includes(sure)) { console.log(sure + "\\trule"); continue; }"""

SPAN_JAVASCRIPT = """\
// node run.mjs TEXT ...          needs: npm install onnxruntime-node @huggingface/tokenizers
// Prints the classes and spans of each text as JSON. Spans are the text as it stands there, by code points: `kolm run`
// converts values, puts lists and texts together, fits all to the schema. Of a long text the first window is read.
import ort from "onnxruntime-node";
import { model } from "./reading.mjs";
import { readSpans } from "./spans.mjs";
$IMPORT$
const session = await ort.InferenceSession.create(model);
for (const text of process.argv.slice(2)) {$RULES$
  console.log(JSON.stringify(await readSpans(session, text)));
}
"""
_SPAN_RULES = """
  const sure = answer(text); // rules answer before the model, with the whole answer
  if (sure !== null) { console.log(JSON.stringify({ rule: JSON.parse(sure) })); continue; }"""


class Placing(StrEnum):
    """The way to the places of a text's tokens in JavaScript."""

    WORD_PIECE = "word_piece"
    BYTES = "bytes"
    BYTES_TRIMMED = "bytes_trimmed"  # spaces that a token begins with are not of it
    BYTES_TRIMMED_BUT_FIRST = "bytes_trimmed_but_first"  # the one that the text begins with is


def write_label_runners(folder: Path, *, has_rules: bool) -> None:
    (folder / "run.py").write_text(LABEL_PYTHON, "utf-8")
    _write_javascript(folder, LABEL_JAVASCRIPT, ["reading"], rules=_LABEL_RULES * has_rules)


def write_span_runners(folder: Path, placing: Placing | None, *, has_rules: bool) -> None:
    """Write run.py, and run.mjs unless `placing` is None; with what they import."""
    (folder / "run.py").write_text(SPAN_PYTHON, "utf-8")
    (folder / "spans.py").write_text(_beside_each_other(spans), "utf-8")
    for module in _BESIDE:
        copy_module(module, folder)
    if placing is not None:
        modules = ["reading", "spans", "places", "kinds", "viterbi", "word_boundaries"]
        _write_javascript(folder, SPAN_JAVASCRIPT, modules, rules=_SPAN_RULES * has_rules)


def copy_module(module: ModuleType, folder: Path) -> None:
    """Copy a module's source, which imports nothing of kolm."""
    (folder / _file_of(module).name).write_bytes(_file_of(module).read_bytes())


def placing_of(tokenizer_json: str) -> Placing | None:
    """None: a token's place cannot be counted in JavaScript."""
    described = json.loads(tokenizer_json)
    cutter, model = described.get("pre_tokenizer") or {}, described["model"]
    match cutter.get("type"), model.get("type"):
        case "BertPreTokenizer", "WordPiece" if model["continuing_subword_prefix"] == "##":
            return Placing.WORD_PIECE
        case "ByteLevel", "BPE" if described.get("normalizer") is None and not cutter.get("add_prefix_space"):
            return _placing_of_bytes(Tokenizer.from_str(tokenizer_json))
    return None


def _placing_of_bytes(tokenizer: Tokenizer) -> Placing:
    """Return what becomes of the spaces that a token begins with, as the tokenizer itself shows it."""
    starts = {start for start, _ in tokenizer.encode(" zq zq", add_special_tokens=False).offsets}
    if 3 in starts:
        return Placing.BYTES
    return Placing.BYTES_TRIMMED_BUT_FIRST if 0 in starts else Placing.BYTES_TRIMMED


def _write_javascript(folder: Path, program: str, modules: list[str], *, rules: str) -> None:
    imported = 'import { answer } from "./rules.mjs";\n' if rules else ""
    (folder / "run.mjs").write_text(program.replace("$IMPORT$\n", f"{imported}\n").replace("$RULES$", rules), "utf-8")
    for name in modules:
        (folder / f"{name}.mjs").write_bytes((JAVASCRIPT / f"{name}.mjs").read_bytes())


def _beside_each_other(module: ModuleType) -> str:
    """The module's source, importing from files beside it what it imports from kolm."""
    source = _file_of(module).read_text("utf-8")
    for one in _BESIDE:
        source = source.replace(f"from {one.__name__} import", f"from {one.__name__.rpartition('.')[2]} import")
    return source


def _file_of(module: ModuleType) -> Path:
    return Path(str(module.__file__))
