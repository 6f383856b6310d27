/*! CodeMirror 6 and Lezer, by Marijn Haverbeke and others: MIT, see codemirror.LICENSE.txt. https://codemirror.net */
// What the spec editor uses of CodeMirror: `npm run bundle` makes vendor/codemirror.min.js of it, with a global
// `codemirror`. The editor itself is static/console/spec_editor.js.
import { StyleModule } from "style-mod";

// CodeMirror puts its rules into a <style> element, which the console's policy refuses (style-src 'self'). Rules of a
// constructed sheet are no inline style to a policy, so nothing has to be loosened and no page needs a nonce.
const sheets = new WeakMap();
const sheetOf = (module) => {
  if (!sheets.has(module)) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(module.getRules());
    sheets.set(module, sheet);
  }
  return sheets.get(module);
};
StyleModule.mount = (root, modules) => {
  const wanted = [modules].flat().map(sheetOf);
  root.adoptedStyleSheets = [...wanted, ...root.adoptedStyleSheets.filter((sheet) => !wanted.includes(sheet))];
};

export {
  acceptCompletion,
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
  pickedCompletion,
} from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export { json } from "@codemirror/lang-json";
export { yaml } from "@codemirror/lang-yaml";
export {
  bracketMatching,
  ensureSyntaxTree,
  indentOnInput,
  indentService,
  indentUnit,
  syntaxHighlighting,
  syntaxTree,
} from "@codemirror/language";
export { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
export { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
export { Annotation, Compartment, EditorState } from "@codemirror/state";
export {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  hoverTooltip,
  keymap,
  lineNumbers,
  placeholder,
} from "@codemirror/view";
export { classHighlighter } from "@lezer/highlight";
