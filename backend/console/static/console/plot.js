// uPlot on every [data-uplot]: the value names a <script type="application/json"> with
//   {"x": [...], "series": [{"label", "values": [...]}], "x_label", "y_label"}
// A page that wants curves loads vendor/uplot.min.css, vendor/uplot.min.js and this file in its `scripts` block.
(() => {
  const colour = (name) => {
    const probe = document.createElement("i"); // a custom property would come back as light-dark(...)
    probe.className = `l${name}`;
    const holder = document.createElement("div");
    holder.className = "legend visually-hidden";
    probe.className = name;
    holder.append(probe);
    document.body.append(holder);
    const found = getComputedStyle(probe).backgroundColor;
    holder.remove();
    return found;
  };
  const plots = new Map();

  const draw = (place) => {
    const given = document.getElementById(place.dataset.uplot);
    if (!given || !window.uPlot) return;
    const { x, series, x_label = "", y_label = "" } = JSON.parse(given.textContent);
    const ink = getComputedStyle(place).color, rule = getComputedStyle(place).borderTopColor;
    const axis = (label) => ({ label, stroke: ink, labelSize: label ? 20 : 0, font: "11px sans-serif", labelFont: "11px sans-serif", grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1, size: 4 } });
    plots.get(place)?.destroy();
    place.replaceChildren();
    const options = {
      width: Math.max(240, place.clientWidth), height: Number(place.dataset.height || 240),
      scales: { x: { time: false } },
      axes: [{ ...axis(x_label), size: 32 }, { ...axis(y_label), size: 48 }],
      series: [{ label: x_label || "x" }, ...series.map((one, i) => ({ label: one.label, stroke: colour(`s${(i % 6) + 1}`), width: 1.6, dash: one.dash ? [4, 3] : undefined, spanGaps: true, points: { show: one.values.length < 40, size: 4 } }))],
      legend: { live: true },
    };
    plots.set(place, new window.uPlot(options, [x, ...series.map((one) => one.values)], place));
  };
  const drawAll = () => document.querySelectorAll("[data-uplot]").forEach(draw);

  drawAll();
  let timer = 0;
  const later = () => { clearTimeout(timer); timer = setTimeout(drawAll, 150); };
  addEventListener("resize", later);
  document.addEventListener("htmx:afterSettle", later);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
  new MutationObserver(later).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
})();
