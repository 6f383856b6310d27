// The way from a text to the classes and spans that the student reads in it, as spans.py has it: tags are the likeliest
// sequence under the plan's constraints, spans the text as it stands there, by code points. Of a long text the first
// window is read.
import { kindsOf } from "./kinds.mjs";
import { placesOf } from "./places.mjs";
import { cut, inputsOf, read, reading, room, tensor, tokenizer } from "./reading.mjs";
import { largest, likeliest } from "./viterbi.mjs";
import { continuesWords } from "./word_boundaries.mjs";

const plan = read("extraction.json"), { before, after, placing } = reading;
const unknown = read("tokenizer.json").model.unk_token;
const listOf = (path) => path.split("/*/")[0];

// {classes, spans}; `session` is what onnxruntime opened model.onnx with
export async function readSpans(session, text) {
  const places = placesOf(text, cut(text).tokens, { placing, tokenizer, unknown }).slice(0, room);
  const inputs = inputsOf(text), kinds = kindsOf(text, places);
  if (session.inputNames.includes("token_kinds"))
    inputs.token_kinds = tensor([...before.map(() => 0), ...kinds, ...after.map(() => 0)]);
  const out = await session.run(inputs);
  const glued = plan.whole_words ? continuesWords(text, places) : [];
  const spans = plan.layers.flatMap((layer, number) => spansOf(layer, out[`tags.${number}`], places, glued, out));
  spans.sort((a, b) => a.start - b.start);
  const points = [...text];
  for (const span of spans) span.text = points.slice(span.start, span.end).join("");
  return { classes: classesOf(out), spans };
}

function classesOf(out) {
  const classes = {};
  plan.rules.forEach(({ path, way, choices }, number) => {
    const row = out[`classes.${number}`]?.data;
    if (row) classes[path] = way === "many" ? choices.filter((_, i) => row[i] > 0) : choices[largest(row)];
  });
  return classes;
}

// the row of each token of the text
const rowsOf = ({ data, dims: [, , width] }, n) =>
  Array.from({ length: n }, (_, i) => data.subarray((before.length + i) * width, (before.length + i + 1) * width));

function spansOf(layer, logits, places, glued, out) {
  const tags = likeliest(rowsOf(logits, places.length), glued), spans = [];
  tags.forEach((tag, at) => {
    if (tag % 2 === 0) return; // 1 + 2 i begins leaf i of the layer, 2 + 2 i goes on
    let last = at;
    while (tags[last + 1] === tag + 1) last++;
    const { path } = plan.rules[layer[(tag - 1) / 2]];
    spans.push({ path, start: places[at][0], end: places[last][1], ...elementOf(path, at, places.length, out) });
  });
  return spans;
}

// whether a field of a list of objects opens a new object, and the classes of that
function elementOf(path, at, n, out) {
  if (!path.includes("/*/")) return {};
  const element = { opens: out.opens.data[before.length + at] > 0 };
  plan.rules.forEach((rule, number) => {
    const scores = out[`elements.${number}`];
    if (!scores || listOf(rule.path) !== listOf(path)) return;
    (element.classes ??= {})[rule.path] = rule.choices[largest(rowsOf(scores, n)[at])];
  });
  return element;
}
