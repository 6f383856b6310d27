// The kinds of tokens: the numbers that kinds.py gives, whose comments say what they are. `offsets` are code points.
export function kindsOf(text, offsets) {
  const points = [...text], words = [];
  for (let at = 0; at < points.length; at++) {
    const start = at;
    while (at < points.length && /[\p{L}\p{N}]/u.test(points[at])) at++;
    if (at > start) words.push({ start, end: at, shape: shapeOf(points.slice(start, at)) });
  }
  let word = 0, before = 0;
  return offsets.map(([start, end], number) => {
    while (word < words.length && words[word].end <= start) word++;
    const isInside = word < words.length && words[word].start < Math.max(end, start + 1);
    const isLine = !number || points.slice(before, start).some((point) => "\n\r".includes(point));
    const isSentence = !number || (before > 0 && ".!?".includes(points[before - 1]));
    before = end;
    return 1 + (isLine + 2 * isSentence) * 7 + (isInside ? words[word].shape : 6);
  });
}

function shapeOf(word) {
  const letters = word.filter((point) => /\p{L}/u.test(point));
  if (letters.length < word.length) return letters.length ? 5 : 4;
  const isUpper = letters.map((point) => /\p{Lu}/u.test(point));
  if (!isUpper.includes(true)) return 0;
  if (isUpper[0] && !isUpper.slice(1).includes(true)) return 1;
  return isUpper.includes(false) ? 3 : 2;
}
