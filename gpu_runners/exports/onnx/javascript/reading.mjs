// The way from a text to the inputs of model.onnx, by `reading` of export.json. Needs onnxruntime-node and
// @huggingface/tokenizers.
import { readFileSync } from "node:fs";
import ort from "onnxruntime-node";
import { Tokenizer } from "@huggingface/tokenizers";

const file = (name) => readFileSync(new URL(name, import.meta.url));
export const read = (name) => JSON.parse(file(name));
export const model = file("model.onnx");
export const reading = read("export.json").reading;
export const tokenizer = new Tokenizer(read("tokenizer.json"), read("tokenizer_config.json"));
export const room = reading.max_length - reading.before.length - reading.after.length;
export const tensor = (numbers) => new ort.Tensor("int64", BigInt64Array.from(numbers, BigInt), [1, numbers.length]);
export const cut = (text) => tokenizer.encode((reading.prefix ?? "") + text, { add_special_tokens: false });

export function inputsOf(text) {
  const ids = [...reading.before, ...cut(text).ids.slice(0, room), ...reading.after];
  return { input_ids: tensor(ids), attention_mask: tensor(ids.map(() => 1)) };
}
