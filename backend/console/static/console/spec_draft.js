// What is typed into a textarea[data-draft] survives a reload, in this browser alone, and two tabs that edit one draft
// never overwrite each other: the one that comes second asks. Knows the textarea and its `input` event, no editor.
//   data-draft   name of the draft; data-posted: the text is what was just sent, and so newer than what is kept
// console.js forgets a draft once its compile is there, and all of them at log-out.
(() => {
  const PREFIX = "kolm-draft:";
  const BRANCH = "kolm-draft-branch:";
  const MOST_CHARS = 1_000_000;
  const DAY_MS = 86_400_000;
  const DAYS = 14;
  const PAUSE_MS = 300;
  const own = [...crypto.getRandomValues(new Uint32Array(2))].map((number) => number.toString(36)).join("");
  let written = 0;

  const read = (key) => {
    try {
      return JSON.parse(localStorage.getItem(key));
    } catch {
      return null;
    }
  };
  const forget = (key) => {
    try {
      localStorage.removeItem(key);
    } catch {
      /* nothing was kept */
    }
  };
  const branchOf = (name) => {
    try {
      return sessionStorage.getItem(BRANCH + name) ?? "";
    } catch {
      return "";
    }
  };
  const forgetOld = () => {
    try {
      for (const key of Object.keys(localStorage).filter((one) => one.startsWith(PREFIX))) {
        if (!(read(key)?.at > Date.now() - DAYS * DAY_MS)) forget(key);
      }
    } catch {
      /* storage may be refused */
    }
  };

  const banner = (area, kind, text, choices) => {
    const place = document.createElement("div");
    const line = document.createElement("p");
    const actions = document.createElement("div");
    place.className = `callout ${kind} spec-draft`;
    place.setAttribute("role", kind === "warn" ? "alert" : "status");
    line.textContent = text;
    actions.className = "cluster";
    for (const [label, act] of choices) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "btn small", textContent: label });
      button.addEventListener("click", () => {
        place.remove();
        act();
      });
      actions.append(button);
    }
    place.append(line, actions);
    area.before(place);
    return place;
  };

  const keep = (area) => {
    const name = area.dataset.draft;
    const base = area.value;
    const isPosted = "posted" in area.dataset;
    let key = PREFIX + name + branchOf(name);
    let seen = null;
    let question = null;
    let timer = 0;
    let hasComplained = false;
    const show = (text) => {
      area.value = text;
      area.dispatchEvent(new Event("input", { bubbles: true }));
    };

    const write = () => {
      const draft = { version: `${own}:${++written}`, text: area.value, at: Date.now() };
      try {
        if (draft.text.length > MOST_CHARS) throw new RangeError("too long");
        localStorage.setItem(key, JSON.stringify(draft));
        seen = draft.version;
      } catch {
        if (!hasComplained)
          window.kolm.notice("This text is too large to be kept in your browser: a reload would lose it.", "warn");
        hasComplained = true;
      }
    };
    const ask = () => {
      if (question) return;
      const theirs = () => read(key);
      question = banner(
        area,
        "warn",
        "This draft was changed in another tab. Nothing is overwritten: choose which text this tab goes on with.",
        [
          [
            "Take theirs",
            () => {
              question = null;
              const one = theirs();
              if (one) {
                seen = one.version;
                show(one.text);
              } else write();
            },
          ],
          [
            "Keep mine",
            () => {
              // a draft of this tab's own from now on; the other tab keeps its own as well
              question = null;
              try {
                sessionStorage.setItem(BRANCH + name, `:${own}`);
              } catch {
                /* this page keeps it all the same */
              }
              key = `${PREFIX}${name}:${own}`;
              write();
            },
          ],
        ],
      );
    };
    const isForeign = (draft) => Boolean(draft) && draft.version !== seen && draft.text !== area.value;
    const save = () => {
      clearTimeout(timer);
      timer = 0;
      if (question || window.kolm.isLeaving) return;
      const now = read(key);
      if (isForeign(now)) ask();
      else if (now?.text === area.value) seen = now.version;
      else if (area.value !== base || isPosted) write();
      else if (now) forget(key);
    };
    const look = () => {
      if (!question && isForeign(read(key))) ask();
    };

    const stored = read(key);
    if (isPosted) {
      if (isForeign(stored)) ask();
      else write();
    } else if (stored && stored.text !== base) {
      seen = stored.version;
      show(stored.text);
      const at = new Date(stored.at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
      banner(area, "info", `Your draft of ${at} is shown, as this browser kept it.`, [
        [
          "Discard the draft",
          () => {
            clearTimeout(timer);
            forget(key);
            seen = null;
            show(base);
          },
        ],
        ["Go on with it", () => {}],
      ]);
    } else if (stored) seen = stored.version;

    area.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(save, PAUSE_MS);
    });
    addEventListener("storage", (event) => {
      if (event.key === key) look();
    });
    addEventListener("pageshow", look);
    addEventListener("pagehide", () => {
      if (timer) save();
    });
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        if (timer) save();
      } else look();
    });
    area.form?.addEventListener("submit", ({ submitter }) => {
      save();
      if (submitter?.value !== "submit" || read(key)?.text !== area.value) return; // another tab's is not ours to end
      try {
        sessionStorage.setItem("kolm-draft-sent", key);
      } catch {
        /* it stays, then */
      }
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    // after htmx, which then checks a draft that is shown
    forgetOld();
    for (const area of document.querySelectorAll("textarea[data-draft]")) keep(area);
  });
})();
