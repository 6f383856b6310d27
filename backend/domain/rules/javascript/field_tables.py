"""The tables of a json task's exported module: before `automaton`, which they tell what to look for, and
after it."""

FIELD_PHRASES = """
const TREE = $TREE$;
const N_FIELDS = $N_FIELDS$;
const MAX_WORDS = $MAX_WORDS$, MAX_BETWEEN = $MAX_BETWEEN$, MAX_DIGITS = $MAX_DIGITS$;

// Every phrase that the list asks for and every word that it reads or knows has a number; so has every value.
const phraseNumbers = new Map(), valueNumbers = new Map();

function numbered(numbers, text) {
  if (!numbers.has(text)) numbers.set(text, numbers.size);
  return numbers.get(text);
}

const phraseOf = (text) => numbered(phraseNumbers, text);
const wordsIn = (phrase) => phrase.split(" ").map(phraseOf);
const KNOWN = $KNOWN$.map(phraseOf);

// A vocabulary is a tree by word: what follows a word, and whether a phrase ends there.
const VOCABULARIES = $VOCABULARIES$.map((phrases) => {
  const root = { next: new Map(), isEnd: false };
  for (const phrase of phrases) {
    let node = root;
    for (const word of wordsIn(phrase)) {
      if (!node.next.has(word)) node.next.set(word, { next: new Map(), isEnd: false });
      node = node.next.get(word);
    }
    node.isEnd = true;
  }
  return root;
});

// What a copy needs to be in the text at all, looked up before anything is read.
function copyOf(copy) {
  if (copy === null) return null;
  const [before = "^", behind = "$"] = copy.between ?? [];
  return {
    isBetween: copy.between !== undefined,
    pattern: copy.pattern ?? null,
    vocabulary: copy.vocabulary ?? -1,
    asNumber: copy.as_number === true,
    after: copy.after ? wordsIn(copy.after) : [],
    opening: before === "^" ? null : wordsIn(before),
    closing: behind === "$" ? null : wordsIn(behind),
    needs: [copy.after, before === "^" ? "" : before, behind === "$" ? "" : behind].filter(Boolean).map(phraseOf),
  };
}

const GROUPS = $GROUPS$.map((group) => group.map((rule) => {
  const phrases = (conditions) => conditions.filter((one) => one[0] !== "<").map(phraseOf);
  const patterns = (conditions) => conditions.filter((one) => one[0] === "<").map((one) => one.slice(1, -1));
  const valued = (pairs) => pairs.map(([field, value]) => [field, numbered(valueNumbers, value)]);
  const copy = copyOf(rule.copy);
  return {
    field: rule.field,
    given: rule.given,
    value: numbered(valueNumbers, rule.given),
    absent: rule.absent ? 1 : 0,
    needsKnown: rule.needsKnown,
    when: copy === null ? phrases(rule.when) : [...phrases(rule.when), ...copy.needs],
    unless: phrases(rule.unless),
    patterns: patterns(rule.when),
    without: patterns(rule.unless),
    asks: valued(rule.asks),
    bars: valued(rule.bars),
    copy,
  };
}));
const PHRASES = [...phraseNumbers.keys()];
"""

FIELD_TABLES = """
const IS_WORD = PHRASES.map((phrase) => phrase !== "#" && !phrase.includes(" "));
// By state from HITTING: the number of the word that ends there, -1 for a word without one.
const WORD_AT = Int32Array.from(ENDING, (longest) => {
  let phrase = longest;
  while (phrase >= 0 && !IS_WORD[phrase]) phrase = CHAIN[phrase];
  return phrase;
});
const IS_KNOWN = new Uint8Array(PHRASES.length);
for (const word of KNOWN) IS_KNOWN[word] = 1;

// The vocabularies of which a phrase begins with a word are BEGINS[BEGINS_AT[word]] to the next word's. MET[vocabulary]
// is the turn in which one did, at the words MET_FIRST to MET_LAST.
const BEGINS_AT = new Int32Array(PHRASES.length + 1), MET = new Int32Array(VOCABULARIES.length);
const MET_FIRST = new Int32Array(VOCABULARIES.length), MET_LAST = new Int32Array(VOCABULARIES.length);
const BEGINS = (() => {
  const begun = PHRASES.map(() => []);
  VOCABULARIES.forEach((root, vocabulary) => { for (const word of root.next.keys()) begun[word].push(vocabulary); });
  begun.forEach((row, word) => { BEGINS_AT[word + 1] = BEGINS_AT[word] + row.length; });
  return Int32Array.from(begun.flat());
})();

const IS_ASKED = new Uint8Array(N_FIELDS);
for (const rule of GROUPS.flat()) for (const [field] of [...rule.asks, ...rule.bars]) IS_ASKED[field] = 1;

// Groups of rules as far as they are decided once some fields' values are `known` (OTHER: none that a rule asks for).
// A group whose first possible rule asks for nothing more is decided here. `code` has for each other group where it
// ends and, of each rule, two phrases that it needs (NONE: no such) and twice its number in `rules`, plus 1 where it
// asks for more. `isSilent`: a group has no possible rule.
const OTHER = -1, IN_TEXT = -2;

function programOf(groups, known) {
  const code = [], rules = [], decided = [], values = new Map(known);
  let needsKnown = false, isSilent = false;
  for (const group of groups) {
    const left = possibleOf(group, values), at = code.length, [first] = left;
    const field = group[0].field;
    isSilent ||= first === undefined;
    if (first !== undefined && asksNothing(first)) {
      decided.push(first);
      values.set(field, first.value);
      needsKnown ||= first.needsKnown;
      continue;
    }
    code.push(0);
    for (const rule of left) {
      const [need = NONE, also = NONE] = rule.when;
      code.push(need, also, 2 * rules.length + (asksMore(rule) ? 1 : 0));
      rules.push(rule);
    }
    code[at] = code.length;
    values.set(field, IN_TEXT);
  }
  return { code: Int32Array.from(code), rules, decided, needsKnown, isSilent };
}

function possibleOf(group, values) {
  const left = [], valueOf = (field) => values.get(field) ?? IN_TEXT;
  const open = ([field]) => valueOf(field) === IN_TEXT;
  for (const rule of group) {
    if (rule.asks.some(([field, value]) => !open([field]) && valueOf(field) !== value)) continue;
    if (rule.bars.some(([field, value]) => valueOf(field) === value)) continue;
    left.push({ ...rule, asks: rule.asks.filter(open), bars: rule.bars.filter(open) });
    if (asksNothing(left.at(-1))) break;
  }
  return left;
}

function asksMore({ when, unless, patterns, without, asks, bars }) {
  return when.length > 2 || [unless, patterns, without, asks, bars].some((conditions) => conditions.length > 0);
}

function asksNothing(rule) {
  return rule.copy === null && rule.when.length === 0 && !asksMore(rule);
}

// What is written: of an object its names with a field's number, a decided field's value, or an object.
function treeOf(node, decided) {
  const given = new Map(decided.map((rule) => [rule.field, rule]));
  return node.flatMap(([name, inner]) => {
    const rule = given.get(inner), start = `${name}: `;
    if (typeof inner !== "number") return [[start, treeOf(inner, decided)]];
    return rule === undefined ? [[start, inner]] : rule.absent === 1 ? [] : [[start + rule.given, null]];
  });
}

// The groups up to the field that most rules ask for, and the rest for each of its values.
const MAX_PROGRAMS = 64;
const { PIVOT, FIRST, BY_VALUE, REST } = (() => {
  const asked = new Map();
  for (const rule of GROUPS.flat()) for (const [field] of rule.asks) asked.set(field, (asked.get(field) ?? 0) + 1);
  const [[pivot]] = [...asked, [-1, 0]].sort(([a, n], [b, m]) => m - n || a - b);
  const values = new Set(GROUPS.flat().flatMap(({ asks, bars }) => [...asks, ...bars])
    .filter(([field]) => field === pivot).map(([, value]) => value));
  const isSplit = pivot >= 0 && values.size <= MAX_PROGRAMS;
  const at = isSplit ? GROUPS.findIndex(([rule]) => rule.field === pivot) + 1 : GROUPS.length;
  const first = programOf(GROUPS.slice(0, at), []);
  const before = first.decided.map((rule) => [rule.field, rule.value]);
  const rest = (value) => {
    const made = programOf(GROUPS.slice(at), isSplit ? [...before, [pivot, value]] : before);
    return { ...made, tree: treeOf(TREE, [...first.decided, ...made.decided]) };
  };
  const byValue = Array(valueNumbers.size).fill(null);
  for (const value of isSplit ? values : []) byValue[value] = rest(value);
  return { PIVOT: isSplit ? pivot : -1, FIRST: first, BY_VALUE: byValue, REST: rest(OTHER) };
})();
"""
