"""The part of an exported module that finds all of a list's PHRASES in one pass over a text."""

AUTOMATON = """
// All phrases as one automaton over the bytes of their UTF-8 (Aho and Corasick 1975), each with a space on both sides.
// A state is where its row of NEXT begins. A second space and a dropped sign lead from a state to itself, so that a
// text is walked as it stands; states at which a phrase ends come last, from HITTING.
const OF_BYTE = new Uint8Array(256), KIND = new Uint8Array(65536);
const SPACE = 1, AWAY = 2, IS_WIDE = 254, IS_SINGLE = 255;

function bytesOf(unit) {
  if (unit < 0x80) return [unit];
  if (unit < 0x800) return [0xc0 | (unit >> 6), 0x80 | (unit & 63)];
  return [0xe0 | (unit >> 12), 0x80 | ((unit >> 6) & 63), 0x80 | (unit & 63)];
}

const NEEDLES = PHRASES.map((phrase) => {
  const bytes = [];
  for (let i = 0; i < phrase.length; i++) bytes.push(...bytesOf(phrase.charCodeAt(i)));
  return [32, ...bytes, 32];
});
let width = 3;
OF_BYTE[32] = SPACE;
for (const byte of new Set([94, 36, ...NEEDLES.flat()])) if (byte !== 32) OF_BYTE[byte] = width++;
for (let unit = 0; unit < 65536; unit++) {
  const type = TYPES[unit];
  KIND[unit] = type === SEPARATOR ? SPACE : type === DROPPED ? AWAY : type === SINGLE ? IS_SINGLE
    : unit >= 0x80 ? IS_WIDE : OF_BYTE[LOWER[unit]];
}

// ENDING[(state - HITTING) / width] is the longest phrase that ends at a state, CHAIN[phrase] the next shorter one.
const { NEXT, ENDING, CHAIN, HITTING } = (() => {
  const most = 1 + NEEDLES.reduce((sum, needle) => sum + needle.length, 0);
  const next = new Int32Array(most * width), out = new Int32Array(most).fill(-1), back = new Int32Array(most);
  const chain = new Int32Array(NEEDLES.length).fill(-1), spaced = new Uint8Array(most);
  let states = 1;
  NEEDLES.forEach((needle, number) => {
    let state = 0;
    for (const byte of needle) {
      const at = state * width + OF_BYTE[byte];
      if (next[at] === 0) { spaced[states] = byte === 32 ? 1 : 0; next[at] = states++; }
      state = next[at];
    }
    out[state] = number;
  });
  const queue = [0];
  for (let head = 0; head < queue.length; head++) {
    const state = queue[head], behind = back[state];
    if (out[state] < 0) out[state] = out[behind];
    else chain[out[state]] = out[behind];
    for (let k = 0; k < width; k++) {
      const at = state * width + k, fallback = state === 0 ? 0 : next[behind * width + k];
      if (next[at] === 0) next[at] = fallback;
      else { back[next[at]] = fallback; queue.push(next[at]); }
    }
  }
  const sorted = [...queue.filter((state) => out[state] < 0), ...queue.filter((state) => out[state] >= 0)];
  const moved = new Int32Array(states), made = new Int32Array(states * width);
  sorted.forEach((state, at) => { moved[state] = at * width; });
  for (const state of sorted) {
    for (let k = 0; k < width; k++) made[moved[state] + k] = moved[next[state * width + k]];
    made[moved[state] + AWAY] = moved[state];
    if (spaced[state] === 1) made[moved[state] + SPACE] = moved[state];
  }
  const ending = sorted.map((state) => out[state]).filter((phrase) => phrase >= 0);
  return { NEXT: made, ENDING: Int32Array.from(ending), CHAIN: chain, HITTING: (states - ending.length) * width };
})();
const WIDTH = width, DOLLAR = OF_BYTE[36], HASH = OF_BYTE[35];
const START = NEXT[NEXT[NEXT[SPACE] + OF_BYTE[94]] + SPACE];

// A phrase is in the text that is looked at while its PRESENT is the turn. The last, NONE, is no phrase.
const NONE = PHRASES.length, PRESENT = new Int32Array(NONE + 1), HITS = new Int32Array(NONE + 1);
const LAST_TURN = 0x7fffffff;
let turn = 0, hits = 0;

function begin() {
  if (turn === LAST_TURN) { PRESENT.fill(0); turn = 0; }
  PRESENT[NONE] = ++turn;
  hits = 0;
}

function note(state) {
  for (let phrase = ENDING[(state - HITTING) / WIDTH]; phrase >= 0; phrase = CHAIN[phrase]) {
    if (PRESENT[phrase] === turn) continue;
    PRESENT[phrase] = turn;
    HITS[hits++] = phrase;
  }
}

function space(state) {
  const reached = NEXT[state + SPACE];
  if (reached >= HITTING) note(reached);
  return reached;
}

function walk(state, unit) {
  const lower = LOWER[unit];
  if (lower < 0x80) return NEXT[state + OF_BYTE[lower]];
  for (const byte of bytesOf(lower)) state = NEXT[state + OF_BYTE[byte]];
  return state;
}

// The phrases with `#`: found once more in the text with `#` for words of digits.
function scanCounted(text) {
  let state = START, before = START, isOpen = false, isNumber = false;
  for (let i = 0; i <= text.length; i++) {
    const unit = i < text.length ? text.charCodeAt(i) : 32, type = TYPES[unit];
    if (type === DROPPED) continue;
    if (type === LETTER) {
      if (!isOpen) { before = state; isOpen = isNumber = true; }
      isNumber = isNumber && unit >= 48 && unit <= 57;
      state = walk(state, unit);
      continue;
    }
    if (isOpen) state = space(isNumber ? NEXT[before + HASH] : state);
    isOpen = false;
    if (type === SINGLE) state = space(walk(state, unit));
  }
  space(NEXT[state + DOLLAR]);
}

const DIGIT = /[0-9]/;
// What a pattern needs, looked for first: all others need a digit.
const SIGNS = { email: "@", url: "://", quoted: '"' };

function hasSign(pattern, text) {
  const sign = SIGNS[pattern];
  return sign === undefined ? DIGIT.test(text) : text.includes(sign);
}

function has(pattern, text) {
  return hasSign(pattern, text) && PATTERNS[pattern].test(text);
}
"""
