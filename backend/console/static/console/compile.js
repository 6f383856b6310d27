// The compile pages' own: what a person has opened or chosen survives a fragment that is fetched anew, a problem's line
// leads into the editor, a form is sent once, lines are chosen for a comparison, events are said aloud.
(() => {
  // --- fragments: open disclosures, ticked boxes, and where a scrolled box stood ---
  const kept = new WeakMap();
  document.addEventListener("htmx:beforeSwap", ({ detail: { target } }) => {
    if (!(target instanceof Element)) return;
    kept.set(target, {
      open: [...target.querySelectorAll("details[id][open]")].map((one) => one.id),
      ticked: [...target.querySelectorAll("input[type=checkbox][id]:checked")].map((one) => one.id),
      scrolled: [...target.querySelectorAll("[id]")].filter((one) => one.scrollLeft || one.scrollTop).map((one) => [one.id, one.scrollLeft, one.scrollTop]),
      focus: target.contains(document.activeElement) ? document.activeElement.id : "",
      height: target.getBoundingClientRect().height,
      isAbove: target.getBoundingClientRect().bottom < 0,
    });
  });
  document.addEventListener("htmx:afterSwap", ({ detail: { target } }) => {
    const before = kept.get(target);
    if (!before) return;
    kept.delete(target);
    for (const id of before.open) { const one = document.getElementById(id); if (one) one.open = true; }
    for (const id of before.ticked) { const one = document.getElementById(id); if (one) one.checked = true; }
    for (const [id, left, top] of before.scrolled) document.getElementById(id)?.scrollTo(left, top);
    if (before.focus && document.activeElement === document.body) document.getElementById(before.focus)?.focus({ preventScroll: true });
    if (before.isAbove) scrollBy(0, target.getBoundingClientRect().height - before.height);
    count();
  });

  // --- lines to compare: two at least, and no more than a table takes ---
  const count = () => {
    for (const form of document.querySelectorAll("[data-several]")) {
      const boxes = [...form.querySelectorAll("input[name=ids]")];
      const n = boxes.filter((box) => box.checked).length;
      for (const box of boxes) box.disabled = n >= Number(form.dataset.several) && !box.checked;
      const button = form.querySelector("[data-compare]");
      if (button) button.disabled = n < 2;
    }
  };
  document.addEventListener("change", (event) => { if (event.target.name === "ids") count(); });

  // --- the editor ---
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-line]");
    const area = document.getElementById("spec");
    if (!button || !area) return;
    if (!area.dispatchEvent(new CustomEvent("kolm:show-line", { detail: Number(button.dataset.line), cancelable: true }))) return; // CodeMirror's
    const lines = area.value.split("\n");
    const at = Math.min(Number(button.dataset.line), lines.length) - 1;
    const start = lines.slice(0, at).reduce((sum, line) => sum + line.length + 1, 0);
    area.focus({ preventScroll: true });
    area.setSelectionRange(start, start + lines[at].length);
    area.scrollTop = Math.max(0, at * parseFloat(getComputedStyle(area).lineHeight) - area.clientHeight / 3);
  });

  // --- a form is sent once; the server would take a second click for the first one's anyway ---
  document.addEventListener("submit", (event) => {
    if (!("once" in event.target.dataset) || event.defaultPrevented) return;
    setTimeout(() => { for (const button of event.target.querySelectorAll("button")) button.disabled = true; });
  });
  addEventListener("pageshow", () => { for (const button of document.querySelectorAll("[data-once] button")) button.disabled = false; });

  // --- saying what happens ---
  document.addEventListener("kolm:event", ({ detail: { type, data } }) => {
    const about = data.data || {};
    const words = {
      "step.started": () => `${about.step} has begun`,
      "step.progress": () => about.total ? `${about.step}: ${about.done} of ${about.total}` : "",
      "step.succeeded": () => `${about.step} is done`,
      warning: () => about.message,
      "compile.status": () => `The compile is ${String(about.status).replace("_", " ")}`,
    }[type];
    if (words) window.kolm.say(words());
  });

  count();
})();
