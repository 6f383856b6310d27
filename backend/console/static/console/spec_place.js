// Where in a spec's text a position is: the keys that lead there, whether a key or a value belongs there, and what
// stands beside it. By indentation in YAML's block form, because half-written text has no syntax tree that is worth the
// name; by brackets in JSON and in YAML's flow form.
(() => {
  const ITEM = "[]"; // a step into a list
  const MOST_LINES = 20_000;
  const MOST_CHARS = 200_000;
  const DEEPEST = 64; // no spec is deeper
  const KEY = /^(?:("[^"]*"|'[^']*')\s*|([^\s"'#[\]{},][^:#]*)):(?=\s|$)/;
  const TOKENS = [
    /\s+|#[^\n]*/,
    /"(?:[^"\\\n]|\\[^\n])*"?|'(?:[^'\n]|'')*'?/,
    /[{}[\],]|:(?=[\s"'{}[\],]|$)|(?<="):/,
    /(?:[^\s,{}[\]:"']|:\S)(?:[^,{}[\]\n:]|:(?!\s|$))*/, // a scalar without quotes may hold colons, as addresses do
    /./,
  ];
  const TOKEN = new RegExp(TOKENS.map(({ source }) => source).join("|"), "gy");
  const plain = (text) => text.trim().replace(/^(["'])(.*?)\1?$/s, "$2");

  // --- block form: one line, then the lines above it with less indentation ---
  const shapeOf = (text) => {
    const dashes = [];
    let column = text.length - text.trimStart().length;
    for (let dash; dashes.length < DEEPEST && (dash = /^-(?:\s+|$)/.exec(text.slice(column))); column += dash[0].length)
      dashes.push(column);
    const body = text.slice(column);
    const isEmpty = !body || body.startsWith("#") || (!column && /^(---|\.\.\.)/.test(body));
    if (isEmpty && !dashes.length) return null;
    const match = KEY.exec(body);
    if (!match) return { dashes, column, body, key: null };
    const key = (match[1] ?? match[2]).trimEnd();
    return { dashes, column, body, key: plain(key), keyLength: key.length, valueAt: column + match[0].length };
  };
  const withoutRemark = (text) => {
    const at = text.search(/\s#/);
    return (at < 0 ? text : text.slice(0, at)).trimEnd();
  };
  const scalarOf = ({ key, valueAt }, text) => [key, plain(withoutRemark(text.slice(valueAt)))];

  const stepsTo = (doc, number, shape) => {
    const steps = [];
    const own = {};
    let column = shape.column;
    let dashes = [...shape.dashes];
    let beside = own;
    let isInList = false;
    const intoList = () => {
      for (; dashes.length; isInList = true) {
        column = dashes.pop();
        steps.unshift({ key: ITEM, beside: {} });
      }
    };
    intoList();
    for (let n = number - 1; n > Math.max(0, number - MOST_LINES); n--) {
      const { text } = doc.line(n);
      const line = shapeOf(text);
      if (!line) continue;
      if (isInList && line.dashes.includes(column)) {
        dashes = line.dashes.filter((dash) => dash < column);
        intoList();
        continue;
      }
      const isAround = line.key !== null && (isInList ? line.column <= column : line.column < column);
      const isBeside = !isInList && line.key !== null && line.column === column;
      if (!isAround && !isBeside) continue;
      if (isAround) {
        beside = {};
        steps.unshift({ key: line.key, beside });
        column = line.column;
        isInList = false;
      } else {
        const [key, value] = scalarOf(line, text);
        beside[key] ??= value;
      }
      dashes = [...line.dashes];
      intoList();
    }
    for (let n = number + 1; n <= Math.min(doc.lines, number + MOST_LINES); n++) {
      const { text } = doc.line(n);
      const line = shapeOf(text);
      if (!line) continue;
      if (Math.min(line.column, ...line.dashes) < shape.column) break;
      if (line.column === shape.column && line.key !== null) {
        const [key, value] = scalarOf(line, text);
        own[key] ??= value;
      }
    }
    return { steps, beside: own };
  };

  const placeInBlock = (doc, at) => {
    const line = doc.lineAt(at);
    const column = at - line.from;
    const shape = shapeOf(line.text) ?? { dashes: [], column, body: "", key: null };
    if (column < shape.column || /(^|\s)#/.test(line.text.slice(0, column))) return null;
    const { steps, beside } = stepsTo(doc, line.number, shape);
    const place = {
      form: "block",
      column: shape.column,
      beside,
      isItem: shape.dashes.length > 0,
      hasColon: shape.key !== null,
    };
    const from = line.from + shape.column;
    if (shape.key === null) return { ...place, kind: "key", steps, from, to: from + withoutRemark(shape.body).length };
    if (at <= from + shape.keyLength)
      return { ...place, kind: "key", name: shape.key, steps, from, to: from + shape.keyLength };
    const rest = line.text.slice(shape.valueAt);
    const begin = line.from + shape.valueAt + (rest.length - rest.trimStart().length);
    const end = begin + withoutRemark(rest.trimStart()).length;
    if (at < line.from + shape.valueAt) return null;
    return {
      ...place,
      kind: "value",
      steps: [...steps, { key: shape.key, beside }],
      from: Math.min(at, begin),
      to: Math.max(at, end),
    };
  };

  // --- flow form: from the first bracket to the position, and on to the end of what it is in ---
  const placeInFlow = (text, at) => {
    const frames = [];
    let place = null;
    let scalar = null;
    const placed = (from, to, name) => {
      const frame = frames.at(-1);
      if (!frame) return;
      const steps = frames.map(({ key, beside }) => ({ key, beside }));
      const isKey = frame.isObject && frame.key === null;
      place = {
        kind: isKey ? "key" : "value",
        steps: isKey ? steps.slice(0, -1) : steps,
        from,
        to,
        name,
        frame,
        hasColon: false,
      };
    };
    for (const match of text.matchAll(TOKEN)) {
      const token = match[0];
      const from = match.index;
      const to = from + token.trimEnd().length;
      const isScalar = !/^[\s#{}[\],:]/.test(token) || (token[0] === ":" && token.length > 1);
      if (!place && isScalar && from <= at && at <= to) placed(from, to, plain(token));
      if (!place && from >= at) placed(at, at);
      if (frames.length > DEEPEST) return null;
      if (place && !frames.includes(place.frame)) break;
      if (place && from > at + MOST_CHARS) break;
      const frame = frames.at(-1);
      if (token === "{" || token === "[")
        frames.push({ isObject: token === "{", key: token === "{" ? null : ITEM, beside: {} });
      else if (token === "}" || token === "]") frames.pop();
      else if (token === "," && frame?.isObject) frame.key = null;
      else if (token === ":" && frame?.isObject && scalar) {
        frame.key = plain(scalar);
        if (place?.frame === frame && place.kind === "key" && place.name === frame.key) place.hasColon = true;
      } else if (isScalar && frame?.isObject && frame.key !== null) frame.beside[frame.key] ??= plain(token);
      if (/\S/.test(token)) scalar = isScalar ? token : null;
    }
    if (!place) placed(at, at);
    if (!place) return null;
    const { frame, ...rest } = place;
    const isKey = rest.kind === "key";
    const own = isKey ? rest.name : rest.steps.at(-1).key;
    const beside = Object.fromEntries(Object.entries(frame.beside).filter(([key]) => key !== own)); // not its own value
    const steps = isKey ? rest.steps : [...rest.steps.slice(0, -1), { key: own, beside }];
    return { ...rest, steps, beside, name: isKey && rest.hasColon ? rest.name : undefined };
  };

  // `flowFrom` is where the outermost bracket around the position opens, -1 in block form. Null where nothing can be
  // said: in an indentation, a comment, between key and colon.
  const placeIn = (doc, at, flowFrom, isJson) => {
    if (flowFrom < 0) return placeInBlock(doc, at);
    const until = Math.min(doc.length, at + MOST_CHARS);
    const place = placeInFlow(doc.sliceString(flowFrom, until), at - flowFrom);
    if (!place) return null;
    const around = isJson ? { steps: [] } : placeInBlock(doc, flowFrom);
    if (!around) return null;
    const form = isJson ? "json" : "flow";
    return {
      ...place,
      form,
      steps: [...around.steps, ...place.steps],
      from: place.from + flowFrom,
      to: place.to + flowFrom,
    };
  };

  Object.assign(window.kolm, { placeInSpec: placeIn, shapeOfLine: shapeOf, ITEM });
})();
