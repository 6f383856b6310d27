"""The parts of a label task's exported module that are the same for every list, around
`automaton`."""

LABEL_PHRASES = """
const PHRASES = $PHRASES$;
"""

LABEL = """
const ANSWERS = $ANSWERS$;
const RULES = $RULES$;

// Each rule waits at one of its phrases, the one that fewest rules ask for, with another that it asks for too (NONE: no
// such). Those of a phrase are WAITING[AT[phrase]] to WAITING[AT[phrase + 1] - 1], in their order.
const AT = new Int32Array(NONE + 2), WAITING = new Int32Array(RULES.length), OTHER = new Int32Array(RULES.length);
const ASKS_MORE = new Uint8Array(RULES.length);
{
  const asked = new Int32Array(NONE), rows = Array.from({ length: NONE + 1 }, () => []);
  for (const [when] of RULES) for (const phrase of when) asked[phrase]++;
  RULES.forEach(([when, unless, patterns, without], number) => {
    const [first = NONE, second = NONE, ...others] = [...when].sort((a, b) => asked[a] - asked[b] || a - b);
    rows[first].push([number, second]);
    ASKS_MORE[number] = others.length + unless.length + patterns.length + without.length > 0 ? 1 : 0;
  });
  let at = 0;
  rows.forEach((row, phrase) => {
    for (const [number, second] of row) { WAITING[at] = number; OTHER[at++] = second; }
    AT[phrase + 1] = at;
  });
}

function scan(text) {
  let state = START;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i), kind = KIND[unit];
    if (kind < IS_WIDE) {
      state = NEXT[state + kind];
      if (state >= HITTING) note(state);
    } else if (kind === IS_WIDE) {
      state = walk(state, unit);
    } else {
      state = space(walk(space(state), unit));
    }
  }
  space(NEXT[space(state) + DOLLAR]);
  if (HASH > 0 && DIGIT.test(text)) scanCounted(text);
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
  begin();
  scan(text);
  HITS[hits++] = NONE;
  let best = RULES.length;
  for (let h = 0; h < hits; h++) {
    const phrase = HITS[h];
    for (let i = AT[phrase], end = AT[phrase + 1]; i < end; i++) {
      const rule = WAITING[i];
      if (rule >= best) break;
      if (PRESENT[OTHER[i]] === turn && (ASKS_MORE[rule] === 0 || applies(rule, text))) best = rule;
    }
  }
  return best < RULES.length ? ANSWERS[RULES[best][4]] : null;
}
"""
