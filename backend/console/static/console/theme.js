// Loaded before the page is painted, so that a chosen theme never flashes. Nothing else belongs here.
(() => {
  let choice = null;
  try { choice = localStorage.getItem("kolm-theme"); } catch { /* storage may be refused */ }
  if (choice === "light" || choice === "dark") document.documentElement.dataset.theme = choice;
})();
