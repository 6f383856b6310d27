"""The parts of a json task's exported module that are the same for every list, after `javascript_runtime.WORDS`."""

FIELDS = """
const TREE = $TREE$;
const N_FIELDS = $N_FIELDS$;
const GROUPS = $GROUPS$;
const KNOWN = new Set($KNOWN$);
const VOCABULARIES = $VOCABULARIES$.map((phrases) => {
  const known = new Set(phrases), lengths = new Map();
  for (const phrase of phrases) {
    const words = phrase.split(" "), tried = lengths.get(words[0]) ?? [];
    if (!tried.includes(words.length)) lengths.set(words[0], [...tried, words.length].sort((a, b) => b - a));
  }
  return { known, lengths };
});
const MAX_WORDS = $MAX_WORDS$, MAX_BETWEEN = $MAX_BETWEEN$, MAX_DIGITS = $MAX_DIGITS$;

function view(text) {
  const made = { text, ...wordsOf(text), patterns: new Map(), counted: null };
  made.padded = padded(made.words);
  return made;
}

function holds(condition, seen) {
  if (condition[0] === "<") return spans(seen, condition.slice(1, -1)).length > 0;
  const needle = ` ${condition} `;
  if (!needle.includes(" # ")) return seen.padded.includes(needle);
  seen.counted ??= counted(seen.words);
  return seen.counted.includes(needle);
}

function spans(seen, pattern) {
  let found = seen.patterns.get(pattern);
  if (found === undefined) {
    found = [];
    const inner = pattern === "quoted" ? 1 : 0, source = new RegExp(PATTERNS[pattern].source, "g");
    for (const match of seen.text.matchAll(source))
      found.push([match.index + inner, match.index + match[0].length - inner]);
    seen.patterns.set(pattern, found);
  }
  return found;
}

function wordsIn(seen, [start, end]) {
  let first = 0;
  while (first < seen.words.length && seen.ends[first] <= start) first++;
  let last = first;
  while (last < seen.words.length && seen.starts[last] < end) last++;
  return [first, last];
}

function says(seen, at, words) {
  if (at < 0 || at + words.length > seen.words.length) return false;
  for (let i = 0; i < words.length; i++) if (seen.words[at + i] !== words[i]) return false;
  return true;
}

const overlaps = (place, taken) => taken.some(([first, end]) => place[0] < end && first < place[1]);
const spanOf = (seen, [first, end]) => [seen.starts[first], seen.ends[end - 1]];

function quote(text) {
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit === 0) return null;
    if (unit < 0xd800 || unit > 0xdfff) continue;
    const after = i + 1 < text.length ? text.charCodeAt(i + 1) : 0;
    if (unit > 0xdbff || after < 0xdc00 || after > 0xdfff) return null;
    i++;
  }
  return JSON.stringify(text).replaceAll("\\x7f", "\\\\u007f");
}

function number(digits) {
  const [start, end = ""] = digits.split(".");
  const whole = start.replace(/^0+/, "") || "0", rest = end.replace(/0+$/, "");
  if (whole.length + rest.length > MAX_DIGITS) return null;
  return rest === "" ? whole : `${whole}.${rest}`;
}

function vocabularyPlaces(seen, { known, lengths }) {
  const places = [];
  for (let at = 0; at < seen.words.length; ) {
    const fits = (n) => at + n <= seen.words.length && known.has(seen.words.slice(at, at + n).join(" "));
    const longest = (lengths.get(seen.words[at]) ?? []).find(fits) ?? 0;
    if (longest > 0) places.push([at, at + longest]);
    at += longest || 1;
  }
  return places.map((place) => [spanOf(seen, place), place]);
}

function between(seen, [before, behind], taken) {
  const opening = before.split(" "), closing = behind.split(" "), length = seen.words.length, starts = [];
  if (before === "^") starts.push(0);
  else for (let at = 0; at < length; at++) if (says(seen, at, opening)) starts.push(at + opening.length);
  if (starts.length !== 1) return null;
  const first = starts[0];
  let end = 0;
  if (behind === "$") end = length - first <= MAX_BETWEEN ? length : 0;
  else for (let at = first + 1; end === 0 && at < Math.min(length, first + MAX_BETWEEN + 1); at++)
    if (says(seen, at, closing)) end = at;
  if (end <= first || overlaps([first, end], taken)) return null;
  const [start, stop] = spanOf(seen, [first, end]), value = quote(seen.text.slice(start, stop));
  return value === null ? null : [value, [first, end]];
}

function read(seen, copy, taken) {
  if (copy.between) return between(seen, copy.between, taken);
  const places = copy.pattern ? spans(seen, copy.pattern).map((span) => [span, wordsIn(seen, span)])
    : vocabularyPlaces(seen, VOCABULARIES[copy.vocabulary]);
  const after = copy.after ? copy.after.split(" ") : [];
  const free = places.filter(([, place]) => says(seen, place[0] - after.length, after) && !overlaps(place, taken));
  if (free.length !== 1) return null;
  const [[start, end], place] = free[0], text = seen.text.slice(start, end);
  const value = copy.as_number ? number(text) : quote(text);
  return value === null ? null : [value, place];
}

function give(rule, seen, given, absent, taken) {
  if (!rule.asks.every(([field, value]) => given[field] === value)) return false;
  if (rule.bars.some(([field, value]) => given[field] === value)) return false;
  if (!rule.when.every((condition) => holds(condition, seen))) return false;
  if (rule.unless.some((condition) => holds(condition, seen))) return false;
  let value = rule.given;
  if (rule.copy !== null) {
    const found = read(seen, rule.copy, taken);
    if (found === null) return false;
    value = found[0];
    taken.push(found[1]);
  }
  given[rule.field] = value;
  absent[rule.field] = rule.absent;
  return true;
}

function write(node, given, absent) {
  const parts = [];
  for (const [name, inner] of node) {
    if (typeof inner !== "number") parts.push(`${name}: ${write(inner, given, absent)}`);
    else if (!absent[inner]) parts.push(`${name}: ${given[inner]}`);
  }
  return `{${parts.join(", ")}}`;
}

export function $NAME$(text) {
  if (GROUPS.length === 0 || GROUPS.length !== N_FIELDS) return null;
  const seen = view(text), taken = [];
  if (seen.words.length > MAX_WORDS) return null;
  const given = Array(N_FIELDS).fill("null"), absent = Array(N_FIELDS).fill(false);
  let needsKnown = false;
  for (const group of GROUPS) {
    const rule = group.find((one) => give(one, seen, given, absent, taken));
    if (rule === undefined) return null;
    needsKnown ||= rule.needsKnown;
  }
  const isTaken = (at) => taken.some(([first, end]) => first <= at && at < end);
  if (needsKnown && !seen.words.every((word, at) => KNOWN.has(word) || isTaken(at))) return null;
  return write(TREE, given, absent);
}
"""
