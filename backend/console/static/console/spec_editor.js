// CodeMirror over every textarea[data-spec-editor]. The textarea stays the form's field: what is typed goes into it and
// it says `input`; whoever sets its value and says `input` changes the editor. Without this script it is the editor.
//   data-schema    address of the JSON Schema, for completion and hover
//   data-problems  selector of the element whose [data-line] buttons name the problems for the margin
(() => {
  const cm = window.codemirror;
  const { kolm } = window;
  const fromOutside = cm.Annotation.define();
  const isMac = /Mac|iP(hone|ad)/.test(navigator.platform);
  let count = 0;

  const wraps = () => {
    try {
      return localStorage.getItem("kolm-wrap") !== "no";
    } catch {
      return true;
    }
  };
  const keepWraps = (is) => {
    try {
      localStorage.setItem("kolm-wrap", is ? "yes" : "no");
    } catch {
      /* not kept, then */
    }
  };
  const wrapping = (is) => (is ? cm.EditorView.lineWrapping : []);
  const language = (doc) => (kolm.isJsonSpec(doc) ? cm.json() : cm.yaml());

  const attributesOf = (area, hint) => {
    const label = area.labels?.[0];
    if (label && !label.id) label.id = `spec-label-${++count}`;
    const name = label ? { "aria-labelledby": label.id } : { "aria-label": area.getAttribute("aria-label") ?? "Spec" };
    return { ...name, "aria-describedby": hint.id, tabindex: "0" }; // by itself a scroller, which needs something to focus
  };

  const toolbar = (area, setWrapping) => {
    const bar = document.createElement("div");
    const hint = document.createElement("p");
    const label = document.createElement("label");
    const box = document.createElement("input");
    bar.className = "spec-bar";
    hint.className = "small-print muted";
    hint.id = `spec-keys-${++count}`;
    const find = isMac ? "⌘F" : "Ctrl+F";
    hint.textContent = area.readOnly
      ? `${find} searches.`
      : `Ctrl+Space completes and explains, ${find} searches, F8 goes to the next problem. ` +
        "Tab indents; press Esc, then Tab to leave the editor.";
    box.type = "checkbox";
    box.checked = wraps();
    box.addEventListener("change", () => {
      keepWraps(box.checked);
      setWrapping(box.checked);
    });
    label.className = "small-print";
    label.append(box, "Wrap lines");
    bar.append(hint, label);
    return { bar, hint };
  };

  // Chromium edits a selection by a style attribute of its own, which the policy refuses and CodeMirror throws away:
  // what is typed over one, or deletes it, is done here. The selection is the document's; CodeMirror hears of it later.
  const typedOver = cm.EditorView.domEventHandlers({
    beforeinput: (event, view) => {
      const selection = getSelection();
      const isTyped = event.inputType === "insertText" && event.data !== null;
      if (!(isTyped || event.inputType.startsWith("deleteContent")) || event.isComposing || view.state.readOnly)
        return false;
      if (
        selection.isCollapsed ||
        !view.contentDOM.contains(selection.anchorNode) ||
        view.state.selection.ranges.length > 1
      )
        return false;
      const range = selection.getRangeAt(0);
      const text = isTyped ? event.data : "";
      const from = view.posAtDOM(range.startContainer, range.startOffset);
      const to = view.posAtDOM(range.endContainer, range.endOffset);
      const userEvent = isTyped ? "input.type" : "delete.selection";
      const edited = () =>
        view.state.update({
          changes: { from, to, insert: text },
          selection: { anchor: from + text.length },
          userEvent,
          scrollIntoView: true,
        });
      const handlers = isTyped ? view.state.facet(cm.EditorView.inputHandler) : [];
      if (!handlers.some((handle) => handle(view, from, to, text, edited))) view.dispatch(edited());
      event.preventDefault();
      return true;
    },
  });

  const extensionsFor = (area, hint, parts, changed) => [
    cm.lineNumbers(),
    cm.lintGutter(),
    cm.highlightActiveLineGutter(),
    cm.highlightActiveLine(),
    cm.drawSelection(),
    cm.history(),
    cm.bracketMatching(),
    cm.closeBrackets(),
    cm.indentOnInput(),
    cm.indentUnit.of("  "),
    cm.EditorState.tabSize.of(2),
    cm.highlightSelectionMatches(),
    cm.search({ top: true }),
    cm.syntaxHighlighting(cm.classHighlighter),
    cm.autocompletion({
      override: area.dataset.schema ? [kolm.completeFrom(area.dataset.schema)] : [],
      activateOnCompletion: kolm.leadsOn,
      icons: false,
    }),
    area.dataset.schema ? kolm.hoverFrom(area.dataset.schema) : [],
    cm.keymap.of([
      { key: "Tab", run: cm.acceptCompletion },
      ...cm.closeBracketsKeymap,
      ...cm.completionKeymap,
      ...cm.searchKeymap,
      ...cm.lintKeymap,
      ...cm.historyKeymap,
      ...cm.defaultKeymap,
      cm.indentWithTab,
    ]),
    area.placeholder ? cm.placeholder(area.placeholder) : [],
    cm.EditorView.contentAttributes.of(attributesOf(area, hint)),
    area.readOnly ? [cm.EditorState.readOnly.of(true), cm.EditorView.editable.of(false)] : [],
    typedOver,
    kolm.indentsOfSpec,
    parts.wrap.of(wrapping(wraps())),
    parts.language.of(language({ sliceString: (from, to) => area.value.slice(from, to) })),
    cm.EditorView.updateListener.of(changed),
  ];

  // --- problems, as the server lists them ---
  const problemsIn = (area, doc) => {
    const place = area.dataset.problems && document.querySelector(area.dataset.problems);
    return [...(place?.querySelectorAll("li:has([data-line])") ?? [])].map((entry) => {
      const button = entry.querySelector("[data-line]");
      const line = doc.line(Math.min(doc.lines, Math.max(1, Number(button.dataset.line) || 1)));
      const indent = line.text.length - line.text.trimStart().length;
      const message = entry.textContent.replace(button.textContent, "").replace(/\s+/g, " ").trim();
      return { from: line.from + indent, to: line.to, severity: entry.closest(".warn") ? "warning" : "error", message };
    });
  };

  const enhance = (area) => {
    if (area.dataset.specEditor === "on") return;
    area.dataset.specEditor = "on";
    const parts = { wrap: new cm.Compartment(), language: new cm.Compartment() };
    const { bar, hint } = toolbar(area, (is) => view.dispatch({ effects: parts.wrap.reconfigure(wrapping(is)) }));
    let view = null;
    let isOwn = false;
    let isJson = kolm.isJsonSpec({ sliceString: (from, to) => area.value.slice(from, to) });
    const changed = (update) => {
      const scrolling = view?.dom.querySelector(".cm-tooltip-autocomplete > ul:not([tabindex])");
      scrolling?.setAttribute("tabindex", "0");
      if (!update.docChanged) return;
      if (kolm.isJsonSpec(update.state.doc) !== isJson) {
        isJson = !isJson;
        queueMicrotask(() => view.dispatch({ effects: parts.language.reconfigure(language(view.state.doc)) }));
      }
      if (update.transactions.some((one) => one.annotation(fromOutside))) return;
      area.value = update.state.doc.toString();
      isOwn = true;
      area.dispatchEvent(new Event("input", { bubbles: true }));
      isOwn = false;
    };
    const extensions = extensionsFor(area, hint, parts, changed);
    view = new cm.EditorView({ state: cm.EditorState.create({ doc: area.value, extensions }) });
    const host = document.createElement("div");
    host.className = "spec-editor";
    host.append(view.dom, bar);
    area.after(host);
    area.hidden = true;
    if (document.activeElement === document.body && area.autofocus) view.focus();

    const show = () => view.dispatch(cm.setDiagnostics(view.state, problemsIn(area, view.state.doc)));
    area.addEventListener("input", () => {
      if (isOwn) return;
      const text = area.value.replace(/\r\n?/g, "\n");
      if (text === view.state.doc.toString()) return;
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: text },
        annotations: fromOutside.of(true),
      });
    });
    area.addEventListener("kolm:show-line", (event) => {
      event.preventDefault();
      const line = view.state.doc.line(Math.min(event.detail, view.state.doc.lines));
      view.dispatch({
        selection: { anchor: line.from, head: line.to },
        effects: cm.EditorView.scrollIntoView(line.from, { y: "center" }),
      });
      view.focus();
    });
    for (const label of area.labels) label.addEventListener("click", () => view.focus());
    document.addEventListener("htmx:afterSwap", ({ detail: { target } }) => {
      if (area.dataset.problems && target?.matches?.(area.dataset.problems)) show();
    });
    show();
  };

  const enhanceAll = (within) =>
    [within, ...within.querySelectorAll("textarea")]
      .filter((one) => one.matches?.("textarea[data-spec-editor]"))
      .forEach(enhance);
  document.addEventListener("htmx:load", ({ target }) => enhanceAll(target));
  enhanceAll(document);
})();
