// Live pages: one EventSource a page, resumed where it broke off.
//
//   <section data-stream="/app/compiles/cmp_x/stream" data-after="17" data-poll="/app/compiles/cmp_x/stream">
//
// Each server-sent event is `id: <seq>`, `event: <type>`, `data: <JSON>`. What happens with one:
//   - data.target and data.html: the fragment replaces the inside of the element that the selector `target` finds
//     (`data.swap` "outer": the element itself), and htmx looks at what came;
//   - data.say, or data.message: is spoken in the live region (at most one sentence in 5 s);
//   - always: a DOM event `kolm:<type>` (dots as dashes) and `kolm:event` on the section; both bubble;
//   - `kolm:changed` at most once a second and `kolm:advanced` at most every three, the last one never before what it
//     is about: `hx-trigger="kolm:changed from:closest [data-stream]"` fetches a fragment anew. (htmx's own
//     `throttle` drops what comes within its time, and the end of a compile is such an event.)
//   - types named in data-ends (by default `end`) close the stream for good; `reconnect` opens it anew at once.
// The browser sends Last-Event-ID when it reconnects by itself; where we have to, `?after=<seq>` says the same.
// Three failures in a row, and the address in data-poll is asked every 4 s with `?after=` and Accept: application/json
// for {"data": [{"seq", "type", "data"}]}; every fifth time the stream is tried again.
(() => {
  const POLL_MS = 4000, FAILURES = 3, PACES_MS = { "kolm:changed": 1000, "kolm:advanced": 3000 };

  class Stream {
    constructor(section) {
      this.section = section;
      this.seq = Number(section.dataset.after || 0);
      this.failures = 0;
      this.polls = 0;
      this.isOver = false;
      this.dispatchedAt = {};
      this.timers = {};
      this.open();
    }

    address(path) {
      const address = new URL(path, location.href);
      if (this.seq) address.searchParams.set("after", String(this.seq));
      return address.href;
    }

    open() {
      if (this.isOver || !this.section.isConnected) return;
      this.source?.close();
      const source = (this.source = new EventSource(this.address(this.section.dataset.stream)));
      const types = (this.section.dataset.types || "").split(/\s+/).filter(Boolean);
      for (const type of new Set(["message", "end", "reconnect", ...types])) source.addEventListener(type, (event) => this.take(event));
      source.onopen = () => { this.section.dataset.state = "live"; };
      source.onerror = () => this.failed(source);
    }

    take(event) {
      this.failures = 0;
      this.polls = 0;
      let data = {};
      try { data = JSON.parse(event.data || "{}"); } catch { data = { text: event.data }; }
      const type = event.type === "message" ? data.type || "message" : event.type;
      if (type === "reconnect") { this.open(); return; }
      this.tell(Number(event.lastEventId || data.seq || 0), type, data);
    }

    tell(seq, type, data) {
      if (seq && seq <= this.seq) return; // told already: a cut between a poll and the stream
      if (seq) this.seq = seq;
      if (data.target && typeof data.html === "string") this.swap(data);
      window.kolm.say(data.say || data.message);
      for (const passing of document.querySelectorAll(".messages")) passing.remove(); // about a state that has passed
      const detail = { seq, type, data };
      for (const name of ["kolm:event", `kolm:${type.replaceAll(".", "-")}`])
        this.section.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
      for (const name of Object.keys(PACES_MS)) this.dispatchSoon(name);
      if ((this.section.dataset.ends || "end").split(/\s+/).includes(type)) this.end();
    }

    dispatchSoon(name) {
      if (this.timers[name]) return;
      const waitMs = Math.max(0, (this.dispatchedAt[name] ?? -Infinity) + PACES_MS[name] - performance.now());
      this.timers[name] = setTimeout(() => {
        this.timers[name] = 0;
        this.dispatchedAt[name] = performance.now();
        this.section.dispatchEvent(new CustomEvent(name, { bubbles: true }));
      }, waitMs);
    }

    swap({ target, html, swap }) {
      const place = document.querySelector(target);
      if (!place) return;
      const kept = document.activeElement?.id;
      if (window.htmx) window.htmx.swap(place, html, { swapStyle: swap === "outer" ? "outerHTML" : "innerHTML" });
      if (kept && document.activeElement?.id !== kept) document.getElementById(kept)?.focus();
      window.kolm.tellTimes();
    }

    failed(source) {
      if (this.isOver) return;
      this.section.dataset.state = "waiting";
      this.failures += 1;
      if (this.failures >= FAILURES) { source.close(); this.poll(); return; }
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.open(), 1000 * 2 ** this.failures * (0.5 + Math.random()));
    }

    async poll() {
      if (this.isOver || !this.section.isConnected) return;
      this.section.dataset.state = "polling";
      this.polls += 1;
      if (this.polls % 5 === 0) { this.failures = FAILURES - 1; this.open(); return; }
      try {
        const answer = await fetch(this.address(this.section.dataset.poll || this.section.dataset.stream), { headers: { Accept: "application/json" } });
        if (answer.ok) for (const row of (await answer.json()).data) this.tell(row.seq, row.type, row.data || row);
      } catch { /* the next one may come through */ }
      setTimeout(() => this.poll(), POLL_MS);
    }

    end() {
      this.isOver = true;
      this.section.dataset.state = "ended";
      this.source?.close();
    }
  }

  const start = () => { for (const section of document.querySelectorAll("[data-stream]")) section.kolmStream ??= new Stream(section); };
  start();
  document.addEventListener("htmx:afterSettle", start);
  addEventListener("pagehide", () => { for (const section of document.querySelectorAll("[data-stream]")) section.kolmStream?.source?.close(); });
  addEventListener("pageshow", (event) => { if (event.persisted) for (const section of document.querySelectorAll("[data-stream]")) section.kolmStream?.open(); });
})();
