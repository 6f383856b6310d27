"""The two small programs beside an exported span student, in Python and JavaScript. They need no kolm.

Both choose the tags token by token, a value going on only where it began. JavaScript's tokenizers do not tell where a
token stands, so run.mjs counts characters, in a way of its own for each kind of tokenizer.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer

from gpu_runners.models.spans import kinds

PYTHON = """\
# python run.py TEXT ...          needs: pip install onnxruntime tokenizers
# Prints the classes and spans of each text as JSON. Spans are the text as it stands there: `kolm run` converts values,
# puts lists together and fits the whole to the schema. Of a long text the first window alone is read.
import json, sys
from pathlib import Path
import numpy, onnxruntime, tokenizers
$IMPORT$
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
    values = {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}$KINDS$
    out = dict(zip(names, session.run(names, values)))
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
                    for each, rule in enumerate(plan["rules"]):  # the classes of the object that it may begin
                        if f"elements.{each}" in out and rule["path"].split("/*/")[0] == path.split("/*/")[0]:
                            choice = rule["choices"][out[f"elements.{each}"][0, at].argmax()]
                            spans[-1].setdefault("classes", {})[rule["path"]] = choice
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
  const values = { input_ids: tensor(ids), attention_mask: tensor(ids.map(() => 1)) };$KINDS$
  const out = await session.run(values);
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
        plan.rules.forEach((rule, each) => { // the classes of the object that it may begin
          const own = out[`elements.${each}`], n = rule.choices.length;
          if (!own || !path.includes("/*/") || rule.path.split("/*/")[0] !== path.split("/*/")[0]) return;
          const scores = own.data.subarray(at * n, (at + 1) * n);
          (spans.at(-1).classes ??= {})[rule.path] = rule.choices[largest(scores, [...scores.keys()])];
        });
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


_PYTHON_KINDS = """
    kinds = kinds_of(text, read.offsets)[:room]
    values["token_kinds"] = numpy.array([[0] * len(before) + list(kinds) + [0] * len(after)])"""
_JAVASCRIPT_KINDS = """
  const kinds = kindsOf(text, places(text, cut.tokens)).slice(0, room);
  values.token_kinds = tensor([...before.map(() => 0), ...kinds, ...after.map(() => 0)]);"""
KINDS = Path(kinds.__file__).read_text("utf-8")
KINDS_JAVASCRIPT = """\
// The kinds of tokens: the numbers that kinds.py gives, whose comments say what they are. `offsets` are code points.
export function kindsOf(text, offsets) {
  const points = [...text], words = [];
  for (let at = 0; at < points.length; at++) {
    const start = at;
    while (at < points.length && /[\\p{L}\\p{N}]/u.test(points[at])) at++;
    if (at > start) words.push({ start, end: at, shape: shapeOf(points.slice(start, at)) });
  }
  let word = 0, before = 0;
  return offsets.map(([start, end], number) => {
    while (word < words.length && words[word].end <= start) word++;
    const isInside = word < words.length && words[word].start < Math.max(end, start + 1);
    const isLine = !number || points.slice(before, start).some((point) => "\\n\\r".includes(point));
    const isSentence = !number || (before > 0 && ".!?".includes(points[before - 1]));
    before = end;
    return 1 + (isLine + 2 * isSentence) * 7 + (isInside ? words[word].shape : 6);
  });
}

function shapeOf(word) {
  const letters = word.filter((point) => /\\p{L}/u.test(point));
  if (letters.length < word.length) return letters.length ? 5 : 4;
  const isUpper = letters.map((point) => /\\p{Lu}/u.test(point));
  if (!isUpper.includes(true)) return 0;
  if (isUpper[0] && !isUpper.slice(1).includes(true)) return 1;
  return isUpper.includes(false) ? 3 : 2;
}
"""


def python(*, reads_kinds: bool) -> str:
    """run.py; of a student that reads kinds kinds.py goes beside it."""
    lines = {"IMPORT": "from kinds import kinds_of\n" if reads_kinds else "", "KINDS": _PYTHON_KINDS * reads_kinds}
    return _fill(PYTHON, lines)


def javascript(tokenizer_json: str, *, has_rules: bool, reads_kinds: bool) -> str | None:
    """run.mjs for this tokenizer; None where `places_function` has none. Of a student that reads kinds kinds.mjs goes
    beside it."""
    places = places_function(tokenizer_json)
    if places is None:
        return None
    imports = ['import { answer } from "./rules.mjs";'] * has_rules
    imports += ['import { kindsOf } from "./kinds.mjs";'] * reads_kinds
    lines = {
        "PLACES": places,
        "IMPORT": "".join(f"{line}\n" for line in imports),
        "RULES": _RULES * has_rules,
        "KINDS": _JAVASCRIPT_KINDS * reads_kinds,
    }
    return _fill(JAVASCRIPT, lines)


def _fill(program: str, lines: Mapping[str, str]) -> str:
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
