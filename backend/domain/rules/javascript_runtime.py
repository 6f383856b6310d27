"""The parts of an exported module that are the same for every list. `$...$` is filled in by `javascript`."""

WORDS = """
const TYPES = new Uint8Array(65536), LOWER = new Uint16Array(65536);
const LETTER = 0, SEPARATOR = 1, DROPPED = 2, SINGLE = 3;
{
  const alphabet = $ALPHABET$;
  for (let unit = 0; unit < 65536; unit++) LOWER[unit] = unit;
  for (const [first, last] of alphabet.singles) TYPES.fill(SINGLE, first, last + 1);
  for (const [first, last] of alphabet.separators) TYPES.fill(SEPARATOR, first, last + 1);
  for (const unit of alphabet.dropped) TYPES[unit] = DROPPED;
  for (const [first, last, shift] of alphabet.lowered)
    for (let unit = first; unit <= last; unit++) LOWER[unit] = unit + shift;
}

function wordsOf(text) {
  const words = [], starts = [], ends = [];
  let word = "", start = 0, end = 0;
  for (let i = 0; i <= text.length; i++) {
    const unit = i < text.length ? text.charCodeAt(i) : 32, type = TYPES[unit];
    if (type === DROPPED) continue;
    if (type === LETTER) {
      if (word === "") start = i;
      word += String.fromCharCode(LOWER[unit]);
      end = i + 1;
      continue;
    }
    if (word !== "") { words.push(word); starts.push(start); ends.push(end); word = ""; }
    if (type === SINGLE) { words.push(text[i]); starts.push(i); ends.push(i + 1); }
  }
  return { words, starts, ends };
}

const padded = (words) => " ^ " + words.join(" ") + " $ ";
const counted = (words) => padded(words.map((word) => (/^[0-9]+$/.test(word) ? "#" : word)));
const PATTERNS = $PATTERNS$;
"""

LABEL = """
const ANSWERS = $ANSWERS$;
const PHRASES = $PHRASES$;
const RULES = $RULES$;

// All phrases as one automaton over the bytes of their UTF-8, as Aho and Corasick 1975 build it.
const COLUMN = new Uint8Array(256), QUICK = new Uint8Array(65536);
const IS_SEPARATOR = 255, IS_DROPPED = 254, IS_SINGLE = 253, IS_WIDE = 252;
let width = 1;

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
for (const byte of new Set([32, 94, 36, ...NEEDLES.flat()])) COLUMN[byte] = width++;
for (let unit = 0; unit < 65536; unit++) {
  const type = TYPES[unit];
  QUICK[unit] = type === SEPARATOR ? IS_SEPARATOR : type === DROPPED ? IS_DROPPED : type === SINGLE ? IS_SINGLE
    : unit >= 0x80 ? IS_WIDE : COLUMN[LOWER[unit]];
}

const SHIFT = Math.ceil(Math.log2(width));
const { NEXT, OUT, CHAIN } = (() => {
  const most = 1 + NEEDLES.reduce((sum, needle) => sum + needle.length, 0);
  const next = new Int32Array(most << SHIFT), out = new Int32Array(most).fill(-1);
  const chain = new Int32Array(NEEDLES.length).fill(-1), back = new Int32Array(most);
  let states = 1;
  NEEDLES.forEach((needle, number) => {
    let state = 0;
    for (const byte of needle) {
      const at = (state << SHIFT) | COLUMN[byte];
      if (next[at] === 0) next[at] = states++;
      state = next[at];
    }
    out[state] = number;
  });
  const queue = [];
  for (let k = 0; k < width; k++) if (next[k] !== 0) queue.push(next[k]);
  for (let head = 0; head < queue.length; head++) {
    const state = queue[head], behind = back[state];
    if (out[state] < 0) out[state] = out[behind];
    else chain[out[state]] = out[behind];
    for (let k = 0; k < width; k++) {
      const at = (state << SHIFT) | k, fallback = next[(behind << SHIFT) | k];
      if (next[at] === 0) next[at] = fallback;
      else { back[next[at]] = fallback; queue.push(next[at]); }
    }
  }
  return { NEXT: next.slice(0, states << SHIFT), OUT: out.slice(0, states), CHAIN: chain };
})();

const SPACE = COLUMN[32];
const walk = (state, byte) => NEXT[(state << SHIFT) | COLUMN[byte]];
const START = walk(walk(walk(0, 32), 94), 32);
const PRESENT = new Int32Array(PHRASES.length), HITS = new Int32Array(PHRASES.length);
const COUNTED = PHRASES.flatMap((phrase, number) => (/(^| )#( |$)/.test(phrase) ? [[number, ` ${phrase} `]] : []));

// Each rule waits at one of its phrases, the one that fewest rules ask for; rules without a phrase are always tried.
const WAITING = PHRASES.map(() => []), ALWAYS = [];
{
  const asked = new Int32Array(PHRASES.length);
  for (const [when] of RULES) for (const phrase of when) asked[phrase]++;
  RULES.forEach(([when], number) => {
    const [rarest] = [...when].sort((a, b) => asked[a] - asked[b] || a - b);
    (rarest === undefined ? ALWAYS : WAITING[rarest]).push(number);
  });
}

let turn = 0, hits = 0;

function note(state) {
  for (let phrase = OUT[state]; phrase >= 0; phrase = CHAIN[phrase]) {
    if (PRESENT[phrase] === turn) continue;
    PRESENT[phrase] = turn;
    HITS[hits++] = phrase;
  }
}

function scan(text) {
  let state = START, isOpen = false;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i), kind = QUICK[unit];
    if (kind < IS_WIDE) {
      state = NEXT[(state << SHIFT) | kind];
      isOpen = true;
    } else if (kind === IS_DROPPED) {
      continue;
    } else {
      if (kind !== IS_WIDE && isOpen) {
        state = NEXT[(state << SHIFT) | SPACE];
        isOpen = false;
        if (OUT[state] >= 0) note(state);
      }
      if (kind === IS_SEPARATOR) continue;
      for (const byte of bytesOf(LOWER[unit])) state = walk(state, byte);
      isOpen = true;
      if (kind === IS_SINGLE) {
        state = NEXT[(state << SHIFT) | SPACE];
        isOpen = false;
        if (OUT[state] >= 0) note(state);
      }
    }
  }
  if (isOpen) {
    state = NEXT[(state << SHIFT) | SPACE];
    if (OUT[state] >= 0) note(state);
  }
  state = walk(walk(state, 36), 32);
  if (OUT[state] >= 0) note(state);
}

function scanCounted(text) {
  const whole = counted(wordsOf(text).words);
  for (const [phrase, needle] of COUNTED) {
    if (PRESENT[phrase] === turn || !whole.includes(needle)) continue;
    PRESENT[phrase] = turn;
    HITS[hits++] = phrase;
  }
}

// What a pattern needs, looked for first: all others need a digit.
const SIGNS = { email: "@", url: "://", quoted: '"' };

function has(pattern, text) {
  const sign = SIGNS[pattern];
  if (sign === undefined ? !/[0-9]/.test(text) : !text.includes(sign)) return false;
  return PATTERNS[pattern].test(text);
}

function applies(rule, text) {
  const [when, unless, patterns, without] = RULES[rule];
  for (let i = 0; i < when.length; i++) if (PRESENT[when[i]] !== turn) return false;
  for (let i = 0; i < unless.length; i++) if (PRESENT[unless[i]] === turn) return false;
  for (let i = 0; i < patterns.length; i++) if (!has(patterns[i], text)) return false;
  for (let i = 0; i < without.length; i++) if (has(without[i], text)) return false;
  return true;
}

export function $NAME$(text) {
  if (turn === 0x7fffffff) { PRESENT.fill(0); turn = 0; }
  turn++;
  hits = 0;
  scan(text);
  if (COUNTED.length > 0 && /[0-9]/.test(text)) scanCounted(text);
  let best = RULES.length;
  for (let h = -1; h < hits; h++) {
    const waiting = h < 0 ? ALWAYS : WAITING[HITS[h]];
    for (let i = 0; i < waiting.length && waiting[i] < best; i++) if (applies(waiting[i], text)) best = waiting[i];
  }
  return best < RULES.length ? ANSWERS[RULES[best][4]] : null;
}
"""
