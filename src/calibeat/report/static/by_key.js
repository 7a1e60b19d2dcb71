// The table of keys: thousands of them, a page at a time.
function startKeys(payload) {
  const { keys } = payload;
  if (!keys) return;
  const raw = payload.methods[0].name, labels = Object.fromEntries(payload.methods.map(m => [m.name, m.label]));
  const names = payload.methods.slice(1).map(m => m.name);
  const table = document.getElementById("keys-table");
  let method = names.includes(payload.verdict.method) ? payload.verdict.method : names[0] ?? raw;
  let metric = "log_loss", largest = 1;

  const score = (name, i) => keys.methods[name][metric][i];
  const difference = i => known(score(method, i)) && known(score(raw, i)) ? score(method, i) - score(raw, i) : null;
  const columns = () => [
    { label: "Key", sort: "text", value: i => keys.key[i], text: i => keys.key[i] },
    { label: "Events", sort: "high", value: i => keys.events[i], text: i => count(keys.events[i]) },
    { label: payload.classes ? "Accuracy, raw" : "Base rate", sort: "high", value: i => keys.base_rate[i], text: i => percent(keys.base_rate[i]) },
    { label: "Raw", sort: "high", value: i => score(raw, i), text: i => number(score(raw, i)) },
    ...(method === raw ? [] : [
      { label: labels[method], sort: "high", value: i => score(method, i), text: i => number(score(method, i)) },
      { label: "Difference", sort: "low", value: difference, text: i => number(difference(i), 4, true), before: i => differenceBar(difference(i)) },
    ]),
  ];

  // A few keys with a handful of events are far out; they fill their bars, and the rest can still be compared.
  function beforeRows(rows) {
    const sizes = rows.map(i => Math.abs(difference(i) ?? 0)).sort((a, b) => a - b);
    largest = Math.max(1e-12, sizes[Math.floor(0.9 * (sizes.length - 1))] ?? 0);
    measure.textContent = `By ${{ log_loss: "log-loss", brier: "Brier score", ce: "calibration error" }[metric]}.`;
  }

  function differenceBar(value) {
    const length = known(value) ? 30 * Math.min(1, Math.abs(value) / largest) : 0;
    return drawing("svg", { viewBox: "0 0 64 10", width: 64, height: 10, "aria-hidden": "true", class: `key-bar ${value < 0 ? "better" : "worse"}` },
      drawing("line", { x1: 32, x2: 32, y1: 0, y2: 10, class: "zero" }),
      drawing("rect", { x: value < 0 ? 32 - length : 32, y: 2, width: length, height: 6 }));
  }

  const measure = element("p", { class: "on-paper small" });
  table.parentElement.before(measure);
  const pages = pagedTable("keys", "key", keys.key, columns, beforeRows);
  document.getElementById("keys-controls").append(...[
    pages.search,
    names.length > 1 ? select("Method", names.map(name => [name, labels[name]]), method, name => { method = name; pages.draw(); }) : null,
    choice("Measure", [["log_loss", "Log-loss"], ["brier", "Brier"], ["ce", "CE"]], metric, to => { metric = to; pages.drawRows(); }),
  ].filter(Boolean));
  pages.draw();
}
