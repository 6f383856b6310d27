// The likeliest sequence of tags, as viterbi.py has it.
export const largest = (row) => row.reduce((best, score, i) => (score > row[best] ? i : best), 0);

// `rows` are the scores of each token's tags: 0 outside, 1 + 2 i begins leaf i, 2 + 2 i goes on with it; a glued token
// neither begins nor ends a value
export function likeliest(rows, glued) {
  const isBegin = (tag) => tag % 2 === 1, goesOn = (tag) => tag > 0 && tag % 2 === 0;
  const back = [];
  let total = [];
  rows.forEach((row, at) => {
    const best = largest(total);
    const from = [...row.keys()].map((tag) => {
      if (goesOn(tag)) return total[tag - 1] >= total[tag] ? tag - 1 : tag;
      return glued[at] && tag === 0 ? 0 : best;
    });
    const isBarred = (tag) => (at === 0 ? goesOn(tag) : isBegin(tag) && glued[at]);
    total = from.map((tag, to) => (isBarred(to) ? -1e9 : (total[tag] ?? 0)) + row[to]);
    back.push(from);
  });
  const path = [];
  for (let at = rows.length - 1, tag = largest(total); at >= 0; at--) {
    path[at] = tag;
    tag = back[at][tag];
  }
  return path;
}
