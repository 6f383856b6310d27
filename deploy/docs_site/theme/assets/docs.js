// What the theme wants to be there before its own script, and the console's choice of light and dark. The policy forbids
// scripts within the page, so the theme's own lines stand here.
(() => {
  const scope = new URL("..", document.currentScript.src);
  window.__md_scope = scope;
  window.__md_hash = (text) => [...text].reduce((sum, letter) => ((sum << 5) - sum + letter.charCodeAt(0)) | 0, 0);
  window.__md_get = (key, storage = localStorage, at = scope) => {
    try { return JSON.parse(storage.getItem(`${at.pathname}.${key}`)); } catch { return null; }
  };
  window.__md_set = (key, value, storage = localStorage, at = scope) => {
    try { storage.setItem(`${at.pathname}.${key}`, JSON.stringify(value)); } catch { /* storage may be refused */ }
  };

  // A page that was opened from a disk may start no worker: the search runs in a frame of it instead.
  if (location.protocol === "file:") {
    window.Worker = class extends EventTarget {
      constructor(address) {
        super();
        const frame = document.createElement("iframe");
        frame.hidden = true;
        document.documentElement.append(frame);
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = inside.document.createElement("script");
        script.src = address;
        this.loaded = new Promise((resolve) => { script.onload = resolve; });
        this.inside = inside;
        inside.document.documentElement.append(script);
      }
      postMessage(data) {
        this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
      }
      terminate() {}
    };
  }

  // The theme asks for the search's index with every page. It is larger than all else together, so it waits for the search.
  const wanted = new Promise((resolve) => {
    addEventListener("focusin", ({ target }) => { if (target.name === "query") resolve(); });
  });
  const { open, send } = XMLHttpRequest.prototype;
  XMLHttpRequest.prototype.open = function (method, address, ...more) {
    this.waits = String(address).endsWith("/search_index.json");
    return open.call(this, method, address, ...more);
  };
  XMLHttpRequest.prototype.send = function (...body) {
    if (this.waits) wanted.then(() => send.apply(this, body)); else send.apply(this, body);
  };

  // The theme puts wide tables into boxes that scroll; those must be reachable by the keyboard.
  new MutationObserver(() => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", "Table");
    }
  }).observe(document, { childList: true, subtree: true });

  const themes = ["", "light", "dark"];
  const words = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };
  const root = document.documentElement;
  addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("[data-theme-toggle]");
    const name = () => { button.textContent = words[root.dataset.theme || ""]; };
    button.hidden = false;
    name();
    button.addEventListener("click", () => {
      const theme = themes[(themes.indexOf(root.dataset.theme || "") + 1) % themes.length];
      if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
      try { localStorage.setItem("kolm-theme", theme); } catch { /* not kept, then */ }
      name();
    });
  });
})();
