"""The two small programs beside an exported span student, in Python and JavaScript. They need no kolm.

Both choose the tags token by token, a value going on only where it began. JavaScript's tokenizers do not tell where a
token stands, so run.mjs counts characters, in a way of its own for each kind of tokenizer.
"""

import json

from tokenizers import Tokenizer

PYTHON = """\
# python run.py TEXT ...          needs: pip install onnxruntime tokenizers
# Prints the classes and spans of each text as JSON. Spans are the text as it stands there: `kolm run` converts values,
# puts lists together and fits the whole to the schema. Of a long text the first window alone is read.
import json, sys
from pathlib import Path
import numpy, onnxruntime, tokenizers

here = Path(__file__).parent
plan, sheet = (json.loads((here / name).read_text("utf-8")) for name in ("extraction.json", "export.json"))
before, after = sheet["reading"]["before"], sheet["reading"]["after"]
room = sheet["reading"]["max_length"] - len(before) - len(after)
tokenizer = tokenizers.Tokenizer.from_file(str(here / "tokenizer.json"))
session = onnxruntime.InferenceSession(here / "model.onnx")
names = [output.name for output in session.get_outputs()]
for text in sys.argv[1:]:
    read = tokenizer.encode(text, add_special_tokens=False)
    ids = numpy.array([before + read.ids[:room] + after])
    out = dict(zip(names, session.run(names, {"input_ids": ids, "attention_mask": numpy.ones_like(ids)})))
    classes, spans = {}, []
    for number, rule in enumerate(plan["rules"]):
        if f"classes.{number}" in out:
            row, choices = out[f"classes.{number}"][0], rule["choices"]
            there = [choice for choice, logit in zip(choices, row) if logit > 0]
            classes[rule["path"]] = there if rule["way"] == "many" else choices[row.argmax()]
    for number, layer in enumerate(plan["layers"]):
        tag = 0  # 0 outside, 1 + 2 i begins leaf i of the layer, 2 + 2 i goes on
        for at, (start, end) in enumerate(read.offsets[:room], len(before)):
            row = out[f"tags.{number}"][0, at]
            allowed = [i for i in range(len(row)) if i % 2 or i in (0, tag, tag + 1)]
            tag = allowed[row[allowed].argmax()]
            if tag % 2:
                path = plan["rules"][layer[tag // 2]]["path"]
                spans.append({"path": path, "start": start, "end": end})
                if "/*/" in path:  # a field of a list of objects: whether a new object begins here
                    spans[-1]["opens"] = bool(out["opens"][0, at, 0] > 0)
            elif tag:
                spans[-1]["end"] = end
    spans.sort(key=lambda span: span["start"])
    for span in spans:
        span["text"] = text[span["start"] : span["end"]]
    print(json.dumps({"classes": classes, "spans": spans}, ensure_ascii=False))
"""

JAVASCRIPT = """\
// node run.mjs TEXT ...          needs: npm install onnxruntime-node @huggingface/tokenizers
// Prints the classes and spans of each text as JSON. Spans are the text as it stands there, by code points: `kolm run`
// converts values, puts lists together and fits the whole to the schema. Of a long text the first window alone is read.
import { readFileSync } from "node:fs";
import ort from "onnxruntime-node";
import { Tokenizer } from "@huggingface/tokenizers";
$IMPORT$
const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
const plan = read("extraction.json"), { before, after, max_length } = read("export.json").reading;
const room = max_length - before.length - after.length;
const tokenizer = new Tokenizer(read("tokenizer.json"), read("tokenizer_config.json"));
const session = await ort.InferenceSession.create(readFileSync(new URL("model.onnx", import.meta.url)));
const largest = (row, allowed) => allowed.reduce((best, i) => (row[i] > row[best] ? i : best));
$PLACES$
for (const text of process.argv.slice(2)) {$RULES$
  const cut = tokenizer.encode(text, { add_special_tokens: false });
  const offsets = places(text, cut.tokens).slice(0, room);
  const ids = [...before, ...cut.ids.slice(0, room), ...after];
  const tensor = (numbers) => new ort.Tensor("int64", BigInt64Array.from(numbers, BigInt), [1, numbers.length]);
  const out = await session.run({ input_ids: tensor(ids), attention_mask: tensor(ids.map(() => 1)) });
  const classes = {}, spans = [];
  plan.rules.forEach(({ path, way, choices }, number) => {
    const row = out[`classes.${number}`]?.data;
    if (row && way === "many") classes[path] = choices.filter((_, i) => row[i] > 0);
    else if (row) classes[path] = choices[largest(row, [...choices.keys()])];
  });
  plan.layers.forEach((layer, number) => {
    const { data, dims } = out[`tags.${number}`], width = dims[2];
    let tag = 0; // 0 outside, 1 + 2 i begins leaf i of the layer, 2 + 2 i goes on
    offsets.forEach(([start, end], i) => {
      const at = before.length + i, row = data.subarray(at * width, (at + 1) * width);
      tag = largest(row, [...row.keys()].filter((one) => one % 2 || [0, tag, tag + 1].includes(one)));
      if (tag % 2) {
        const { path } = plan.rules[layer[(tag - 1) / 2]];
        spans.push({ path, start, end });
        // a field of a list of objects: whether a new object begins here
        if (path.includes("/*/")) spans.at(-1).opens = out.opens.data[at] > 0;
      } else if (tag) spans.at(-1).end = end;
    });
  });
  spans.sort((a, b) => a.start - b.start);
  for (const span of spans) span.text = [...text].slice(span.start, span.end).join("");
  console.log(JSON.stringify({ classes, spans }));
}
"""
_RULES = """
  const sure = answer(text); // rules answer before the model, with the whole answer
  if (sure !== null) { console.log(JSON.stringify({ rule: JSON.parse(sure) })); continue; }"""

# of WordPiece: the pieces are the normalised text without its white space; an unknown piece is a whole word
_WORD_PIECE = """
const PUNCTUATION = /[\\p{P}\\x21-\\x2f\\x3a-\\x40\\x5b-\\x60\\x7b-\\x7e]/u, UNKNOWN = $UNKNOWN$;
function places(text, tokens) {
  const normal = (point) => (tokenizer.normalizer ? tokenizer.normalizer(point) : point);
  const chars = [...text].flatMap((point, i) => [...normal(point)].map((char) => [char, i]));
  const isWord = (at) => at < chars.length && !/\\s/u.test(chars[at][0]) && !PUNCTUATION.test(chars[at][0]);
  let at = 0;
  return tokens.map((token) => {
    while (at < chars.length && /\\s/u.test(chars[at][0])) at++;
    const first = at;
    at += token === UNKNOWN ? 1 : [...token.replace(/^##(?=.)/u, "")].length;
    if (token === UNKNOWN && isWord(first)) while (isWord(at)) at++;
    return [chars[first][1], chars[at - 1][1] + 1];
  });
}"""
# of byte-level BPE: a token has one character for each byte
_BYTE_LEVEL = """
function places(text, tokens) {
  const bytes = [...text].flatMap((point, i) => [...Buffer.from(point)].map((byte) => [byte, i]));
  let at = 0;
  return tokens.map((token, number) => {
    let first = at;
    at += [...token].length;
    const end = bytes[at - 1][1] + 1;$TRIM$
    return [first < at ? bytes[first][1] : end, end];
  });
}"""
_TRIM = """
    while (first < at && bytes[first][0] === 32) first++; // spaces before a word are not of it"""
_KEEP = """
    if (number === 0 && first === 1) return [0, at === 1 ? 0 : end]; // but the one that the text begins with"""


def javascript(tokenizer_json: str, *, has_rules: bool) -> str | None:
    """run.mjs for this tokenizer; None where `places_function` has none."""
    places = places_function(tokenizer_json)
    if places is None:
        return None
    lines = {"PLACES": places, "IMPORT": "", "RULES": ""}
    lines |= {"IMPORT": 'import { answer } from "./rules.mjs";\n', "RULES": _RULES} if has_rules else {}
    program = JAVASCRIPT
    for name, text in lines.items():
        program = program.replace(f"${name}$", text)
    return program


def places_function(tokenizer_json: str) -> str | None:
    """JavaScript's `places(text, tokens)`: [start, end] of each token in code points, as the tokenizer has them in
    Python. None where they cannot be counted."""
    described = json.loads(tokenizer_json)
    cutter, model = described.get("pre_tokenizer") or {}, described["model"]
    match cutter.get("type"), model.get("type"):
        case "BertPreTokenizer", "WordPiece" if model["continuing_subword_prefix"] == "##":
            return _WORD_PIECE.replace("$UNKNOWN$", json.dumps(model["unk_token"]))
        case "ByteLevel", "BPE" if described.get("normalizer") is None and not cutter.get("add_prefix_space"):
            return _BYTE_LEVEL.replace("$TRIM$", _trim(Tokenizer.from_str(tokenizer_json)))
    return None


def _trim(tokenizer: Tokenizer) -> str:
    """Return what becomes of the spaces that a token begins with, as the tokenizer itself shows it."""
    offsets = tokenizer.encode(" zq zq", add_special_tokens=False).offsets
    starts = {start for start, _ in offsets}
    if 3 in starts:
        return ""
    return _TRIM + (_KEEP if 0 in starts else "")
