// A file is dropped on a form instead of chosen in it; one that is too large is said before it is sent.
(() => {
  const tooLarge = (file, most) => `${file.name} has ${Math.round(file.size / 1e6)} MB and at most ${Math.round(most / 1e6)} are read here. On your machine, kolm init ${file.name} reads a file of any size and uploads an even sample of its rows.`;
  for (const form of document.querySelectorAll("[data-drop]")) {
    const zone = form.querySelector("[data-drop-zone]"), input = form.querySelector("input[type=file]");
    const fault = form.querySelector("[data-drop-fault]"), most = Number(form.dataset.mostBytes);
    for (const name of ["dragenter", "dragover"]) zone.addEventListener(name, (event) => { event.preventDefault(); zone.classList.add("over"); });
    for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("over"));
    zone.addEventListener("drop", (event) => {
      event.preventDefault();
      if (event.dataTransfer.files.length !== 1) return;
      input.files = event.dataTransfer.files;
      input.dispatchEvent(new Event("change", { bubbles: true }));
    });
    // in the capture phase, before htmx sends it
    document.addEventListener("change", (event) => {
      if (event.target !== input || !input.files[0]) return;
      const isLarge = input.files[0].size > most;
      fault.hidden = !isLarge;
      if (!isLarge) return;
      fault.textContent = tooLarge(input.files[0], most);
      input.value = "";
      document.getElementById("source").replaceChildren();
      event.stopImmediatePropagation();
    }, true);
    // a slow line takes minutes: how much has arrived, then that it is being read
    const sent = form.querySelector("[data-drop-sent]");
    form.addEventListener("htmx:xhr:loadstart", () => { sent.hidden = false; sent.value = 0; });
    form.addEventListener("htmx:xhr:progress", ({ detail }) => { if (detail.lengthComputable) sent.value = detail.loaded / detail.total; });
    form.addEventListener("htmx:afterRequest", () => { sent.hidden = true; });
    for (const name of ["htmx:responseError", "htmx:sendError"]) form.addEventListener(name, ({ detail }) => {
      const isLarge = detail.xhr?.status === 413;
      fault.textContent = isLarge ? tooLarge(input.files[0], most) : "The file did not arrive. Look at the connection and choose it again.";
      fault.hidden = false;
    });
  }
})();
