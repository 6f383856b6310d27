// The places of the tokens of a text, which @huggingface/tokenizers does not say: [start, end] of each in code points, as
// the tokenizer has them in Python. `placing` is that of export.json.
export function placesOf(text, tokens, { placing, tokenizer, unknown }) {
  if (placing === "word_piece") return wordPiece(text, tokens, tokenizer, unknown);
  return bytes(text, tokens, placing);
}

const PUNCTUATION = /[\p{P}\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e]/u;

// the pieces are the normalised text without its white space; an unknown piece is a whole word
function wordPiece(text, tokens, tokenizer, unknown) {
  const normal = (point) => (tokenizer.normalizer ? tokenizer.normalizer(point) : point);
  const chars = [...text].flatMap((point, i) => [...normal(point)].map((char) => [char, i]));
  const isWord = (at) => at < chars.length && !/\s/u.test(chars[at][0]) && !PUNCTUATION.test(chars[at][0]);
  let at = 0;
  return tokens.map((token) => {
    while (at < chars.length && /\s/u.test(chars[at][0])) at++;
    const first = at;
    at += token === unknown ? 1 : [...token.replace(/^##(?=.)/u, "")].length;
    if (token === unknown && isWord(first)) while (isWord(at)) at++;
    return [chars[first][1], chars[at - 1][1] + 1];
  });
}

// of byte-level BPE: a token has one character for each byte
function bytes(text, tokens, placing) {
  const all = [...text].flatMap((point, i) => [...Buffer.from(point)].map((byte) => [byte, i]));
  let at = 0;
  return tokens.map((token, number) => {
    let first = at;
    at += [...token].length;
    const end = all[at - 1][1] + 1;
    // spaces before a word are not of it, but the one that the text begins with may be
    if (placing !== "bytes") while (first < at && all[first][0] === 32) first++;
    if (placing === "bytes_trimmed_but_first" && number === 0 && first === 1) return [0, at === 1 ? 0 : end];
    return [first < at ? all[first][1] : end, end];
  });
}
