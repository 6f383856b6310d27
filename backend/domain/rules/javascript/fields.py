"""The behaviour of a json task's exported module, after `field_tables`."""

FIELDS = """
// The text that is looked at: where its words begin and end, their numbers (-1: the list has no such word), which of
// them a field took, and what the fields were given.
const STARTS = new Int32Array(MAX_WORDS + 2), ENDS = new Int32Array(MAX_WORDS + 2);
const WORDS = new Int32Array(MAX_WORDS + 2);
const TAKEN = new Int32Array(2 * N_FIELDS);
const GIVEN = Array(N_FIELDS).fill("null"), VALUE = new Int32Array(N_FIELDS), ABSENT = new Uint8Array(N_FIELDS);
for (const rule of FIRST.decided) VALUE[rule.field] = rule.value;
let words = 0, takenPlaces = 0, asksKnown = false;

function meet(word) {
  for (let i = BEGINS_AT[word], end = BEGINS_AT[word + 1]; i < end; i++) {
    const vocabulary = BEGINS[i];
    if (MET[vocabulary] !== turn) MET_FIRST[vocabulary] = words;
    MET[vocabulary] = turn;
    MET_LAST[vocabulary] = words;
  }
}

function closed(state, end) {
  const reached = NEXT[state + SPACE];
  let word = -1;
  if (reached >= HITTING) {
    note(reached);
    word = WORD_AT[(reached - HITTING) / WIDTH];
    if (word >= 0) meet(word);
  }
  ENDS[words] = end;
  WORDS[words++] = word;
  return reached;
}

// False for a text of too many words.
function scan(text) {
  let state = START, isOpen = false, end = 0;
  words = takenPlaces = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i), kind = KIND[unit];
    if (kind === AWAY) continue;
    if (kind !== SPACE && kind !== IS_SINGLE) {
      if (!isOpen) { STARTS[words] = i; isOpen = true; }
      state = kind === IS_WIDE ? walk(state, unit) : NEXT[state + kind];
      end = i + 1;
      continue;
    }
    if (isOpen) { state = closed(state, end); isOpen = false; }
    if (kind === IS_SINGLE && words <= MAX_WORDS) { STARTS[words] = i; state = closed(walk(state, unit), i + 1); }
    if (words > MAX_WORDS) return false;
  }
  if (isOpen) state = closed(state, end);
  space(NEXT[state + DOLLAR]);
  if (HASH > 0 && DIGIT.test(text)) scanCounted(text);
  return words <= MAX_WORDS;
}

function says(at, phrase) {
  if (at < 0 || at + phrase.length > words) return false;
  for (let i = 0; i < phrase.length; i++) if (WORDS[at + i] !== phrase[i]) return false;
  return true;
}

function isFree(first, end) {
  for (let i = 0; i < takenPlaces; i++) if (first < TAKEN[2 * i + 1] && TAKEN[2 * i] < end) return false;
  return true;
}

function quote(text) {
  let isPlain = true;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit === 0) return null;
    if (unit < 32 || unit === 34 || unit === 92 || unit === 127) isPlain = false;
    if (unit < 0xd800 || unit > 0xdfff) continue;
    const after = i + 1 < text.length ? text.charCodeAt(i + 1) : 0;
    if (unit > 0xdbff || after < 0xdc00 || after > 0xdfff) return null;
    i++;
  }
  return isPlain ? `"${text}"` : JSON.stringify(text).replaceAll("\\x7f", "\\\\u007f");
}

function number(digits) {
  const [start, end = ""] = digits.split(".");
  const whole = start.replace(/^0+/, "") || "0", rest = end.replace(/0+$/, "");
  if (whole.length + rest.length > MAX_DIGITS) return null;
  return rest === "" ? whole : `${whole}.${rest}`;
}

function take(first, end, value) {
  if (value === null) return null;
  TAKEN[2 * takenPlaces] = first;
  TAKEN[2 * takenPlaces++ + 1] = end;
  return value;
}

const ALL_OF = {};
for (const name of Object.keys(PATTERNS)) ALL_OF[name] = new RegExp(PATTERNS[name].source, "g");

function fromPattern(text, { pattern, after, asNumber }) {
  if (!hasSign(pattern, text)) return null;
  const source = ALL_OF[pattern], inner = pattern === "quoted" ? 1 : 0;
  let value = null, first = 0, end = 0;
  source.lastIndex = 0;
  for (let match = source.exec(text); match !== null; match = source.exec(text)) {
    const start = match.index + inner, stop = match.index + match[0].length - inner;
    let from = 0;
    while (from < words && ENDS[from] <= start) from++;
    let to = from;
    while (to < words && STARTS[to] < stop) to++;
    if (!says(from - after.length, after) || !isFree(from, to)) continue;
    if (value !== null) return null;
    [value, first, end] = [text.slice(start, stop), from, to];
  }
  return value === null ? null : take(first, end, asNumber ? number(value) : quote(value));
}

function fromVocabulary(text, { vocabulary, after }) {
  if (MET[vocabulary] !== turn) return null;
  const root = VOCABULARIES[vocabulary];
  let first = -1, end = 0;
  for (let at = MET_FIRST[vocabulary]; at <= MET_LAST[vocabulary]; ) {
    let longest = 0;
    for (let node = root.next.get(WORDS[at]), n = 1; node !== undefined; node = node.next.get(WORDS[at + n++])) {
      if (node.isEnd) longest = n;
      if (at + n >= words) break;
    }
    if (longest > 0 && says(at - after.length, after) && isFree(at, at + longest)) {
      if (first >= 0) return null;
      [first, end] = [at, at + longest];
    }
    at += longest || 1;
  }
  return first < 0 ? null : take(first, end, quote(text.slice(STARTS[first], ENDS[end - 1])));
}

function fromBetween(text, { opening, closing }) {
  let first = opening === null ? 0 : -1;
  if (opening !== null)
    for (let at = 0; at < words; at++) {
      if (!says(at, opening)) continue;
      if (first >= 0) return null;
      first = at + opening.length;
    }
  if (first < 0) return null;
  let end = 0;
  if (closing === null) end = words - first <= MAX_BETWEEN ? words : 0;
  else for (let at = first + 1; end === 0 && at < Math.min(words, first + MAX_BETWEEN + 1); at++)
    if (says(at, closing)) end = at;
  if (end <= first || !isFree(first, end)) return null;
  return take(first, end, quote(text.slice(STARTS[first], ENDS[end - 1])));
}

function copied(text, copy) {
  if (copy.isBetween) return fromBetween(text, copy);
  return copy.pattern === null ? fromVocabulary(text, copy) : fromPattern(text, copy);
}

function applies({ when, unless, patterns, without, asks, bars }, text) {
  for (let i = 0; i < asks.length; i++) if (VALUE[asks[i][0]] !== asks[i][1]) return false;
  for (let i = 0; i < bars.length; i++) if (VALUE[bars[i][0]] === bars[i][1]) return false;
  for (let i = 0; i < when.length; i++) if (PRESENT[when[i]] !== turn) return false;
  for (let i = 0; i < unless.length; i++) if (PRESENT[unless[i]] === turn) return false;
  for (let i = 0; i < patterns.length; i++) if (!has(patterns[i], text)) return false;
  for (let i = 0; i < without.length; i++) if (has(without[i], text)) return false;
  return true;
}

// Gives each field by the first of its rules that applies; false where one has none.
function run({ code, rules }, text) {
  for (let at = 0; at < code.length; ) {
    const end = code[at++];
    for (; at < end; at += 3) {
      if (PRESENT[code[at]] !== turn || PRESENT[code[at + 1]] !== turn) continue;
      const known = code[at + 2], rule = rules[known >> 1];
      if (((known & 1) === 0 || applies(rule, text)) && give(rule, text)) break;
    }
    if (at >= end) return false;
    at = end;
  }
  return true;
}

function give({ field, given, value, absent, copy, needsKnown }, text) {
  if (copy !== null) {
    const found = copied(text, copy);
    if (found === null) return false;
    GIVEN[field] = found;
    VALUE[field] = IS_ASKED[field] === 1 ? valueNumbers.get(found) ?? OTHER : OTHER;
  } else {
    GIVEN[field] = given;
    VALUE[field] = value;
  }
  ABSENT[field] = absent;
  if (needsKnown) asksKnown = true;
  return true;
}

function areKnown() {
  for (let at = 0; at < words; at++)
    if ((WORDS[at] < 0 || IS_KNOWN[WORDS[at]] === 0) && isFree(at, at + 1)) return false;
  return true;
}

function write(node) {
  let made = "";
  for (let i = 0; i < node.length; i++) {
    const start = node[i][0], inner = node[i][1], isLeaf = typeof inner === "number";
    if (isLeaf && ABSENT[inner] === 1) continue;
    if (made !== "") made += ", ";
    made += isLeaf ? start + GIVEN[inner] : inner === null ? start : start + write(inner);
  }
  return `{${made}}`;
}

export function $NAME$(text) {
  if (GROUPS.length === 0 || GROUPS.length !== N_FIELDS || FIRST.isSilent) return null;
  if (turn === LAST_TURN) MET.fill(0);
  begin();
  asksKnown = FIRST.needsKnown;
  if (!scan(text) || !run(FIRST, text)) return null;
  const value = PIVOT < 0 ? OTHER : VALUE[PIVOT];
  const rest = (value >= 0 ? BY_VALUE[value] : null) ?? REST;
  if (rest.isSilent || !run(rest, text)) return null;
  return (asksKnown || rest.needsKnown) && !areKnown() ? null : write(rest.tree);
}
"""
