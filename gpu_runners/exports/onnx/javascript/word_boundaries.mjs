// The places in a text where a word may begin or end, as word_boundaries.py has them, by code points.

// of each token, whose places in the text are `places`, whether it stands in the middle of a word
export function continuesWords(text, places) {
  const points = [...text];
  const isBoundary = (at) => {
    if (at <= 0 || at >= points.length) return true;
    const kind = kindOf(points[at - 1]);
    return kind !== kindOf(points[at]) || kind === "" || kind === "ideograph";
  };
  return places.map(([start], number) => number > 0 && places[number - 1][1] >= start && !isBoundary(start));
}

function kindOf(point) {
  if (/\p{Nd}/u.test(point)) return "digit";
  // a combining character is moved before U+0345, whose class is the last one
  const isCombining = point === "\u0345" || !("\u0345" + point).normalize("NFD").startsWith("\u0345");
  if (!/\p{L}/u.test(point) && !isCombining) return "";
  const code = point.codePointAt(0);
  const isIdeograph = (code >= 0x2e80 && code <= 0x9fff) || (code >= 0xac00 && code <= 0xd7a3) || code >= 0x20000;
  return isIdeograph ? "ideograph" : "letter";
}
