// Completion and hover for the spec editor, out of the published JSON Schema, which is fetched when first asked for.
(() => {
  const { ensureSyntaxTree, hoverTooltip, indentService, pickedCompletion, syntaxTree } = window.codemirror;
  const { ITEM, overSchema, placeInSpec, shapeOfLine } = window.kolm;
  const NOT_PLAIN = /^(|~|null|true|false|yes|no|on|off|[-+.\d].*)$/i; // texts that YAML reads as something else
  const MOST_PARSING_MS = 50;
  const OPENED = /^(\s*(?:-\s+)*(?:[^\s#"'{}[\],][^:#]*:\s+)?)[{[]/; // a bracket that is a line's item or value
  const schemas = new Map();

  const schemaAt = (address) => {
    if (!schemas.has(address)) {
      const loaded = fetch(address)
        .then((answer) => (answer.ok ? answer.json() : Promise.reject(answer)))
        .then(overSchema);
      loaded.catch(() => schemas.delete(address)); // asked again next time; the editor works without
      schemas.set(address, loaded);
    }
    return schemas.get(address).catch(() => null);
  };

  const isJson = (doc) => doc.sliceString(0, 200).trimStart().startsWith("{");
  const treeAt = (state, at) => ensureSyntaxTree(state, at, MOST_PARSING_MS) ?? syntaxTree(state);
  const placeAt = (state, at) => {
    if (isJson(state.doc)) return placeInSpec(state.doc, at, state.doc.sliceString(0, 200).indexOf("{"), true);
    let from = -1;
    const tree = treeAt(state, at);
    for (let node = tree.resolveInner(at, -1); node; node = node.parent) {
      if (/^(Comment|BlockLiteral)/.test(node.name)) return null;
      const isClosed = /[}\]]/.test(state.sliceDoc(node.to - 1, node.to));
      if (/^Flow/.test(node.name) && node.from < at && (at < node.to || !isClosed)) from = node.from;
    }
    if (from < 0 && tree.length < at) {
      // not parsed so far: what opens on the line itself is known all the same
      const line = state.doc.lineAt(at);
      const opened = line.from + (OPENED.exec(line.text)?.[1].length ?? line.length);
      if (opened < at) from = opened;
    }
    return placeInSpec(state.doc, at, from, false);
  };

  const noteElement = (name, note) => {
    const place = document.createElement("div");
    place.className = "spec-note";
    const add = (tag, text) => {
      const line = document.createElement(tag);
      line.textContent = text;
      place.append(line);
    };
    if (name) add("strong", name);
    if (note.meaning) add("p", note.meaning);
    for (const line of note.lines) add("small", line);
    return place;
  };

  // --- completion ---
  const textOf = (value, form) => {
    if (typeof value !== "string" || form === "json") return JSON.stringify(value);
    return NOT_PLAIN.test(value) ? JSON.stringify(value) : value;
  };
  const afterKey = (key, place) => {
    const pad = " ".repeat((place.column ?? 0) + 2);
    if (place.form === "block" && key.opens === "object") return `:\n${pad}`;
    if (place.form === "block" && key.opens === "array") return `:\n${pad}- `;
    const [open, close] = { object: ["{", "}"], array: ["[", "]"], value: ["", ""] }[key.opens];
    return [`: ${open}`, close];
  };
  const insert = (view, completion, text, after = "") => {
    const at = view.state.selection.main.head;
    const place = placeAt(view.state, at) ?? { from: at, to: at };
    const { from, to } = place;
    const annotations = pickedCompletion.of(completion); // which opens what may come next
    view.dispatch({
      changes: { from, to, insert: text + after },
      selection: { anchor: from + text.length },
      annotations,
      userEvent: "input.complete",
      scrollIntoView: true,
    });
  };
  const keyOption = (key, index) => ({
    label: key.name,
    type: "property",
    detail: key.isRequired ? "required" : "",
    boost: (key.isRequired ? 40 : 0) + Math.max(-50, 40 - index),
    leads: key.opens !== "value" || key.values.length > 0,
    info: () => noteElement("", key.note),
    apply: (view, completion) => {
      const place = placeAt(view.state, view.state.selection.main.head);
      if (!place) return;
      const name = place.form === "json" ? JSON.stringify(key.name) : key.name;
      const [before, after = ""] = place.hasColon ? [""] : [afterKey(key, place)].flat();
      insert(view, completion, name + before, after);
    },
  });
  const valueOption = (value, index, form) => ({
    label: typeof value === "string" ? value : JSON.stringify(value),
    type: "enum",
    boost: Math.max(-50, 40 - index),
    apply: (view, completion) => insert(view, completion, textOf(value, form)),
  });

  const completeFrom = (address) => async (context) => {
    const place = placeAt(context.state, context.pos);
    if (!place || (!context.explicit && place.kind === "key" && place.from === context.pos)) return null;
    const schema = await schemaAt(address);
    if (!schema || context.aborted) return null;
    const keys =
      place.kind === "key"
        ? schema.keysAt(place.steps, place.beside).filter(({ name }) => name === place.name || !(name in place.beside))
        : [];
    const isValue = place.kind === "value" || place.isItem;
    const values = isValue
      ? schema.valuesAt(place.steps).map((value, index) => valueOption(value, index, place.form))
      : [];
    const options = [...keys.map(keyOption), ...values];
    const from = place.from + (/^["']/.test(context.state.sliceDoc(place.from, place.from + 1)) ? 1 : 0);
    const written = context.state.sliceDoc(from, context.pos);
    const labels = options.map(({ label }) => label);
    // a value that is there in full is complete: Enter is then a new line again
    const isWhole = (text) =>
      isValue && labels.includes(text) && labels.every((label) => label === text || !label.startsWith(text));
    if (!options.length || from > context.pos || (isWhole(written) && !context.explicit)) return null;
    return { from, options, validFor: (text) => /^[\w-]*$/.test(text) && !isWhole(text) };
  };

  // --- hover ---
  const hoverFrom = (address) =>
    hoverTooltip(async (view, at) => {
      const place = placeAt(view.state, at);
      if (!place || at < place.from || at > place.to) return null;
      const steps =
        place.kind === "key" && place.name !== undefined
          ? [...place.steps, { key: place.name, beside: place.beside }]
          : place.steps;
      const schema = place.kind === "key" && place.name === undefined ? null : await schemaAt(address);
      const note = schema?.noteAt(steps);
      if (!note || !(note.meaning || note.lines.length)) return null;
      const name = steps
        .map(({ key }) => key)
        .join(".")
        .replaceAll(`.${ITEM}`, ITEM);
      return { pos: place.from, end: place.to, above: true, create: () => ({ dom: noteElement(name, note) }) };
    });

  // --- a new line of the block form begins where the one above it does, or below its key ---
  const indents = indentService.of((context, at) => {
    const { state } = context;
    if (isJson(state.doc)) return undefined;
    for (let node = treeAt(state, at).resolveInner(at, -1); node; node = node.parent) {
      if (/^(Flow|BlockLiteral|Quoted)/.test(node.name)) return undefined;
    }
    const above = context.lineAt(at, -1).text;
    const line = shapeOfLine(above);
    if (!line) return /^\s*#/.test(above) ? above.indexOf("#") : undefined;
    if (line.key === null) return line.dashes.at(-1) ?? line.column;
    const isOpen = /^\s*([|>][-+\d]*\s*)?(\s#.*)?$/.test(above.slice(line.valueAt));
    return line.column + (isOpen ? 2 : 0);
  });

  Object.assign(window.kolm, {
    completeFrom,
    hoverFrom,
    indentsOfSpec: indents,
    placeOf: placeAt,
    leadsOn: ({ leads }) => Boolean(leads),
    isJsonSpec: isJson,
  });
})();
