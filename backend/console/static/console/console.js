// What every page has: theme, copying, local times, menus that close, notices. No framework, no eval.
(() => {
  const root = document.documentElement;
  const $$ = (selector, within = document) => within.querySelectorAll(selector);

  // --- theme: light, dark, or whatever the system says ---
  const themes = ["", "light", "dark"];
  const themeNow = () => root.dataset.theme || "";
  const nameTheme = () => {
    const words = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };
    for (const button of $$("[data-theme-toggle]")) button.textContent = words[themeNow()];
  };
  const nextTheme = () => {
    const theme = themes[(themes.indexOf(themeNow()) + 1) % themes.length];
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    try { localStorage.setItem("kolm-theme", theme); } catch { /* not kept, then */ }
    nameTheme();
  };

  // --- speaking: at most one sentence in 5 s, the newest one ---
  let spokenAt = -Infinity, waiting = null, timer = 0;
  const say = (text) => {
    const region = document.getElementById("live");
    if (!region || !text) return;
    waiting = String(text).slice(0, 300);
    const speak = () => { timer = 0; region.textContent = waiting; spokenAt = performance.now(); };
    if (!timer) timer = setTimeout(speak, Math.max(0, spokenAt + 5000 - performance.now()));
  };

  const notice = (text, kind = "bad") => {
    const place = document.getElementById("notices");
    if (!place) return;
    const line = document.createElement("p");
    line.className = `callout ${kind}`;
    line.textContent = text;
    place.append(line);
    setTimeout(() => line.remove(), 8000);
  };

  // --- copying ---
  const copy = async (button) => {
    const text = button.dataset.copy || document.querySelector(button.dataset.copyFrom)?.textContent || "";
    try { await navigator.clipboard.writeText(text); } catch {
      const area = document.createElement("textarea");
      area.value = text; area.className = "visually-hidden";
      document.body.append(area); area.select(); document.execCommand("copy"); area.remove(); button.focus();
    }
    button.classList.add("is-done");
    setTimeout(() => button.classList.remove("is-done"), 1500);
    say("Copied");
  };

  // --- times, in the reader's zone and words ---
  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const units = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const agoOf = (at) => {
    const seconds = (at - Date.now()) / 1000;
    if (Math.abs(seconds) < 45) return seconds <= 0 ? "just now" : "in a moment";
    const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size);
    return relative.format(Math.round(seconds / size), unit);
  };
  const tellTimes = (within = document) => {
    for (const time of $$("time[data-local], time[data-ago]", within)) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      if (!time.title) time.title = full.format(at);
      time.textContent = "ago" in time.dataset ? agoOf(at) : local.format(at);
    }
  };

  // --- amounts of a column share one decimal point: shorter ones are padded ---
  const places = (amount) => { const text = amount.textContent, dot = text.indexOf("."); return dot < 0 ? -1 : text.length - dot - 1; };
  const alignAmounts = (within = document) => {
    for (const table of $$("table", within.closest?.("table") ? within.closest("table").parentNode : within)) {
      const columns = new Map();
      for (const row of table.rows) {
        let at = 0;
        for (const cell of row.cells) {
          const amount = cell.classList.contains("num") ? cell.querySelector(":scope > data.usd:first-child") : null;
          const next = amount?.nextSibling; // an amount within a sentence is no column's
          if (amount && amount === cell.firstChild && (!next || next.nodeName === "BR")) columns.set(at, [...(columns.get(at) || []), amount]);
          at += cell.colSpan;
        }
      }
      for (const amounts of columns.values()) {
        const most = Math.max(...amounts.map(places));
        for (const amount of amounts) amount.dataset.pad = String(most - places(amount));
      }
    }
  };

  // --- events of the whole page ---
  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    if (!target) return;
    if (target.closest("[data-theme-toggle]")) nextTheme();
    const copying = target.closest("[data-copy], [data-copy-from]");
    if (copying) { event.preventDefault(); copy(copying); }
    const opener = target.closest("[data-opens]");
    if (opener) { event.preventDefault(); document.getElementById(opener.dataset.opens)?.showModal(); }
    if (target.closest("[data-closes]")) target.closest("dialog")?.close();
    for (const menu of $$("details[data-menu][open]")) if (!menu.contains(target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of $$("details[data-menu][open]")) { menu.open = false; menu.querySelector("summary").focus(); }
  });
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset?.confirm;
    if (question && !confirm(question)) event.preventDefault();
    if (!event.target.action?.endsWith?.("/accounts/logout/")) return;
    window.kolm.isLeaving = true;
    try { // drafts of specs hold a team's texts
      for (const key of Object.keys(localStorage)) if (key.startsWith("kolm-draft:")) localStorage.removeItem(key);
    } catch { /* storage may be refused */ }
  });
  document.addEventListener("change", (event) => {
    if (event.target.closest?.("[data-submits]")) event.target.form?.requestSubmit();
  });

  // --- drafts of specs: the page after the one that sent it says whether it became a compile ---
  try {
    const sent = sessionStorage.getItem("kolm-draft-sent");
    sessionStorage.removeItem("kolm-draft-sent");
    if (sent && /\/compiles\/cmp_/.test(location.pathname)) localStorage.removeItem(sent);
  } catch { /* storage may be refused */ }

  // --- htmx: our token, refusals as notices, a log-in page where the session ended ---
  document.addEventListener("htmx:configRequest", (event) => {
    event.detail.headers["X-CSRFToken"] = document.querySelector('meta[name="csrf-token"]')?.content || "";
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    if (xhr.responseURL && new URL(xhr.responseURL).pathname.startsWith("/accounts/")) {
      event.detail.shouldSwap = false;
      location.assign(xhr.responseURL);
      return;
    }
    if (xhr.status < 400) return;
    const isPage = (xhr.getResponseHeader("Content-Type") || "").startsWith("text/html");
    if (isPage && !xhr.responseText.includes("data-problem")) {
      event.detail.shouldSwap = xhr.status < 500; // a form with its errors
      event.detail.isError = false;
      if (xhr.status < 500) return;
    }
    event.detail.shouldSwap = false;
    let text = "";
    if (isPage) text = new DOMParser().parseFromString(xhr.responseText, "text/html").querySelector("[data-problem]")?.textContent.trim();
    else try { text = JSON.parse(xhr.responseText).detail; } catch { /* not ours */ }
    notice(text || `Something went wrong (${xhr.status}). Try again.`);
  });
  document.addEventListener("htmx:sendError", () => notice("kolm does not answer; is the network there?", "warn"));
  document.addEventListener("htmx:afterSwap", (event) => { tellTimes(event.detail.target); alignAmounts(event.detail.target); });

  window.kolm = { say, notice, tellTimes };
  nameTheme();
  tellTimes();
  alignAmounts();
  setInterval(tellTimes, 30000);
})();
