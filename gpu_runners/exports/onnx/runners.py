"""The two small programs beside an exported label student, in Python and JavaScript. They need no kolm."""

PYTHON = """\
# python run.py TEXT ...          needs: pip install onnxruntime tokenizers
import json, sys
from pathlib import Path
import numpy, onnxruntime, tokenizers

here = Path(__file__).parent
labels = json.loads((here / "labels.json").read_text("utf-8"))
prefix = json.loads((here / "export.json").read_text("utf-8"))["reading"]["prefix"]
tokenizer = tokenizers.Tokenizer.from_file(str(here / "tokenizer.json"))
session = onnxruntime.InferenceSession(here / "model.onnx")
for text in sys.argv[1:]:
    ids = numpy.array([tokenizer.encode(prefix + text).ids])
    (row,) = session.run(["probabilities"], {"input_ids": ids, "attention_mask": numpy.ones_like(ids)})[0]
    print(labels[row.argmax()], f"{row.max():.6f}", sep="\\t")
"""

JAVASCRIPT = """\
// node run.mjs TEXT ...          needs: npm install onnxruntime-node @huggingface/tokenizers
import { readFileSync } from "node:fs";
import ort from "onnxruntime-node";
import { Tokenizer } from "@huggingface/tokenizers";
%(import)s
const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
const labels = read("labels.json"), { prefix, before, after, max_length } = read("export.json").reading;
const tokenizer = new Tokenizer(read("tokenizer.json"), read("tokenizer_config.json"));
const session = await ort.InferenceSession.create(readFileSync(new URL("model.onnx", import.meta.url)));
for (const text of process.argv.slice(2)) {%(rules)s
  const words = tokenizer.encode(prefix + text, { add_special_tokens: false }).ids;
  const ids = [...before, ...words.slice(0, max_length - before.length - after.length), ...after];
  const tensor = (numbers) => new ort.Tensor("int64", BigInt64Array.from(numbers, BigInt), [1, numbers.length]);
  const out = await session.run({ input_ids: tensor(ids), attention_mask: tensor(ids.map(() => 1)) });
  const row = out.probabilities.data, best = row.indexOf(Math.max(...row));
  console.log(labels[best] + "\\t" + row[best].toFixed(6));
}
"""
_RULES = """
  const sure = answer(text); // rules answer before the model
  if (labels.includes(sure)) { console.log(sure + "\\trule"); continue; }"""


def javascript(*, has_rules: bool) -> str:
    """run.mjs; where there are rules, it asks rules.mjs first."""
    lines = {"import": 'import { answer } from "./rules.mjs";\n' if has_rules else "", "rules": ""}
    return JAVASCRIPT % (lines | ({"rules": _RULES} if has_rules else {}))
