// The keyboard: / search, g then a letter, n new compile, j k Enter on rows, ? help. Never while someone types.
(() => {
  const typing = (element) =>
    element instanceof Element && (element.isContentEditable || element.matches("input:not([type=checkbox], [type=radio]), textarea, select"));
  let prefix = "", prefixAt = 0;

  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null || row.getClientRects().length);
  const walk = (by) => {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.classList.contains("is-at"));
    const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by))];
    all.forEach((row) => { row.classList.toggle("is-at", row === next); row.toggleAttribute("aria-current", row === next); });
    next.tabIndex = -1;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };
  const open = (row) => { const href = row.dataset.href || row.querySelector("a[href]")?.href; if (href) location.assign(href); };
  const go = (sequence) => {
    const link = document.querySelector(`.nav a[data-keys="${sequence}"]`);
    if (link) location.assign(link.href);
    return Boolean(link);
  };
  const help = () => { const dialog = document.getElementById("help"); if (dialog && !dialog.open) dialog.showModal(); };
  const search = () => {
    const field = [...document.querySelectorAll("main [data-search], [data-search]")].find((input) => input.checkVisibility());
    if (field) { field.focus(); field.select(); return; }
    const menu = document.querySelector(".top details[data-menu]"); // a narrow window: the search is in the menu
    if (menu) { menu.open = true; menu.querySelector("[data-search]")?.focus(); }
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) { if (event.key === "Escape") event.target.blur(); return; }
    if (document.querySelector("dialog[open]")) return;
    const isSecond = prefix && event.timeStamp - prefixAt < 1500;
    const first = isSecond ? prefix : "";
    prefix = "";
    if (first) { if (/^[a-z]$/.test(event.key) && go(`${first} ${event.key}`)) event.preventDefault(); return; }
    if (event.key === "g") { prefix = "g"; prefixAt = event.timeStamp; return; }
    if (event.key === "/") { event.preventDefault(); search(); }
    else if (event.key === "?") { event.preventDefault(); help(); }
    else if (event.key === "j" || event.key === "k") { event.preventDefault(); walk(event.key === "j" ? 1 : -1); }
    else if (event.key === "n") go("n");
    else if (event.key === "Enter" && event.target instanceof Element && event.target.matches("[data-row]")) open(event.target);
  });
  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element)) return;
    if (event.target.closest("[data-help]")) { event.preventDefault(); help(); return; }
    const row = event.target.closest("[data-row][data-href]"); // a row is a link, but for what is one itself
    if (row && !event.target.closest("a, button, input, label, summary, select") && !String(getSelection())) open(row);
  });
})();
