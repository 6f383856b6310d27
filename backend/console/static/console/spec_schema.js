// The spec's JSON Schema, asked by path: which keys may stand there, which values, and what a key means. Alternatives
// (anyOf, oneOf) are all open until a key beside them decides, as `type: label` does for an output.
(() => {
  const { ITEM } = window.kolm;
  const DEEPEST = 8;
  const MOST_EXAMPLE = 120;
  const list = (words) => words.map((word) => (typeof word === "string" ? word : JSON.stringify(word))).join(", ");

  const overSchema = (root) => {
    const target = (ref) =>
      ref
        .slice(2)
        .split("/")
        .reduce((node, key) => node[key.replace(/~1/g, "/").replace(/~0/g, "~")], root);
    // a node's own alternatives, without references
    const branches = (node, deep = 0) => {
      if (typeof node !== "object" || node === null || deep > DEEPEST) return [];
      if (node.$ref) return branches(target(node.$ref), deep + 1);
      const inner = node.anyOf ?? node.oneOf ?? node.allOf;
      return inner ? inner.flatMap((one) => branches(one, deep + 1)) : [node];
    };
    const contradicts = (branch, beside) =>
      Object.entries(branch.properties ?? {}).some(
        ([key, { const: only }]) => only !== undefined && beside[key] && beside[key] !== String(only),
      );
    const fitting = (nodes, beside) => {
      const all = nodes.flatMap((node) => branches(node));
      const left = all.filter((branch) => !contradicts(branch, beside));
      return left.length ? left : all;
    };
    const below = (nodes, { key, beside }) =>
      fitting(nodes, beside).flatMap((branch) => {
        if (key === ITEM) return branch.items ? [branch.items] : [];
        const open = typeof branch.additionalProperties === "object" ? [branch.additionalProperties] : [];
        return branch.properties?.[key] ? [branch.properties[key]] : open;
      });
    const nodesAt = (steps) => steps.reduce(below, [root]);
    const meaning = (node) => node.description ?? (node.$ref ? target(node.$ref).description : "") ?? "";

    const scalars = (node) =>
      branches(node).flatMap(
        (branch) =>
          branch.enum ??
          (branch.const !== undefined
            ? [branch.const]
            : branch.type === "boolean"
              ? [true, false]
              : branch.type === "null"
                ? [null]
                : []),
      );
    const bounds = ({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }) =>
      [
        minimum !== undefined ? `from ${minimum}` : exclusiveMinimum !== undefined ? `above ${exclusiveMinimum}` : "",
        maximum !== undefined ? `to ${maximum}` : exclusiveMaximum !== undefined ? `below ${exclusiveMaximum}` : "",
      ]
        .filter(Boolean)
        .join(" ");
    const NAMES = {
      object: "an object",
      array: "a list",
      string: "a text",
      integer: "a whole number",
      number: "a number",
    };
    const form = (node) => {
      const words = branches(node)
        .filter((branch) => NAMES[branch.type] && !branch.enum && branch.const === undefined)
        .map((branch) => [NAMES[branch.type], bounds(branch)].filter(Boolean).join(" "));
      return [...new Set(words)];
    };
    // what hover and the list of keys say of a key, as short lines
    const noteOf = (node) => {
      const values = [...new Set(scalars(node))];
      const [first] = node.examples ?? [];
      const isOpen = form(node).length > 0;
      return {
        meaning: meaning(node),
        lines: [
          isOpen
            ? `${form(node).join(", or ")}${values.length ? `, or ${list(values)}` : ""}`
            : values.length
              ? `one of ${list(values)}`
              : "",
          node.default !== undefined ? `default ${JSON.stringify(node.default)}` : "",
          first !== undefined ? `example ${JSON.stringify(first).slice(0, MOST_EXAMPLE)}` : "",
        ].filter(Boolean),
      };
    };
    const opens = (node) => {
      // what comes after the key: an object, a list, or a value on the line
      const types = new Set(
        branches(node)
          .map((branch) => branch.type)
          .filter((type) => type !== "null"),
      );
      return types.size === 1 && types.has("object")
        ? "object"
        : types.size === 1 && types.has("array")
          ? "array"
          : "value";
    };

    // what several alternatives say of one key
    const merged = (nodes) => (nodes.length === 1 ? nodes[0] : { description: meaning(nodes[0]), anyOf: nodes });

    const keysAt = (steps, beside) => {
      const found = new Map();
      const all = fitting(nodesAt(steps), beside);
      for (const branch of all) {
        for (const [name, node] of Object.entries(branch.properties ?? {}))
          found.set(name, [...(found.get(name) ?? []), node]);
      }
      return [...found].map(([name, nodes]) => {
        const node = merged(nodes);
        const isRequired = all.every((branch) => branch.required?.includes(name));
        return { name, opens: opens(node), values: scalars(node), isRequired, note: noteOf(node) };
      });
    };
    const valuesAt = (steps) => [...new Set(nodesAt(steps).flatMap(scalars))];
    const noteAt = (steps) => {
      const nodes = nodesAt(steps);
      return nodes.length ? noteOf(merged(nodes)) : null;
    };
    return { keysAt, valuesAt, noteAt };
  };

  window.kolm.overSchema = overSchema;
})();
