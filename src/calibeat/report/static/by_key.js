// The table of keys: thousands of them, a page at a time.
const ROWS_A_PAGE = 25;

function startKeys(payload) {
  const { keys } = payload;
  if (!keys) return;
  const raw = payload.methods[0].name, labels = Object.fromEntries(payload.methods.map(m => [m.name, m.label]));
  const names = payload.methods.slice(1).map(m => m.name);
  const table = document.getElementById("keys-table"), pager = document.getElementById("keys-pager");
  const folded = keys.key.map(key => key.toLowerCase());
  let method = names.includes(payload.verdict.method) ? payload.verdict.method : names[0] ?? raw;
  let metric = "log_loss", wanted = "", page = 0, order = keys.key.map((_, i) => i), sorted = null;

  const score = (name, i) => keys.methods[name][metric][i];
  const difference = i => known(score(method, i)) && known(score(raw, i)) ? score(method, i) - score(raw, i) : null;
  const columns = () => [
    { label: "Key", sort: "text", value: i => keys.key[i], text: i => keys.key[i] },
    { label: "Events", sort: "high", value: i => keys.events[i], text: i => count(keys.events[i]) },
    { label: payload.classes ? "Accuracy, raw" : "Base rate", sort: "high", value: i => keys.base_rate[i], text: i => percent(keys.base_rate[i]) },
    { label: "Raw", sort: "high", value: i => score(raw, i), text: i => number(score(raw, i)) },
    ...(method === raw ? [] : [
      { label: labels[method], sort: "high", value: i => score(method, i), text: i => number(score(method, i)) },
      { label: "Difference", sort: "low", value: difference, text: i => number(difference(i), 4, true), bar: true },
    ]),
  ];

  function drawHead() {
    const row = element("tr", {}, ...columns().map(({ label, sort }) => element("th", { scope: "col", "data-sort": sort }, label)));
    table.replaceChildren(element("thead", {}, row), element("tbody"));
    [...row.cells].forEach((heading, at) => sortButton(heading, direction => {
      sorted = { at, direction };
      page = 0;
      drawRows();
    }));
    if (sorted && row.cells[sorted.at]) row.cells[sorted.at].setAttribute("aria-sort", sorted.direction > 0 ? "ascending" : "descending");
    else sorted = null;
  }

  function drawRows() {
    const shown = columns();
    let rows = order.filter(i => folded[i].includes(wanted));
    if (sorted) {
      const { value } = shown[sorted.at];
      rows = rows.toSorted(byValue(sorted.direction, i => value(i) ?? null));
    }
    const pages = Math.max(1, Math.ceil(rows.length / ROWS_A_PAGE));
    page = Math.max(0, Math.min(page, pages - 1));
    const visible = rows.slice(page * ROWS_A_PAGE, (page + 1) * ROWS_A_PAGE);
    // A few keys with a handful of events are far out; they fill their bars, and the rest can still be compared.
    const sizes = rows.map(i => Math.abs(difference(i) ?? 0)).sort((a, b) => a - b);
    const largest = Math.max(1e-12, sizes[Math.floor(0.9 * (sizes.length - 1))] ?? 0);
    table.tBodies[0].replaceChildren(...visible.map(i => element("tr", {}, ...shown.map(({ text, bar }, at) =>
      at === 0 ? element("th", { scope: "row", class: "key", title: text(i) }, element("bdi", {}, text(i))) :
        element("td", { class: "number" }, bar ? differenceBar(difference(i), largest) : null, text(i))))));
    if (!visible.length) table.tBodies[0].append(element("tr", {}, element("td", { colspan: shown.length }, "No key matches.")));
    status.textContent = rows.length ? `${count(page * ROWS_A_PAGE + 1)}–${count(page * ROWS_A_PAGE + visible.length)} of ${counted(rows.length, "key")}` : "0 keys";
    measure.textContent = `By ${{ log_loss: "log-loss", brier: "Brier score", ce: "calibration error" }[metric]}.`;
    back.disabled = page === 0;
    on.disabled = page >= pages - 1;
  }

  function differenceBar(value, largest) {
    const length = known(value) ? 30 * Math.min(1, Math.abs(value) / largest) : 0;
    return drawing("svg", { viewBox: "0 0 64 10", width: 64, height: 10, "aria-hidden": "true", class: `key-bar ${value < 0 ? "better" : "worse"}` },
      drawing("line", { x1: 32, x2: 32, y1: 0, y2: 10, class: "zero" }),
      drawing("rect", { x: value < 0 ? 32 - length : 32, y: 2, width: length, height: 6 }));
  }

  const turn = by => () => { page += by; drawRows(); };
  const status = element("span", { class: "small", role: "status", id: "keys-status" });
  const back = element("button", { type: "button", on: { click: turn(-1) } }, "Previous");
  const on = element("button", { type: "button", on: { click: turn(1) } }, "Next");
  pager.append(back, status, on);
  const measure = element("p", { class: "on-paper small" });
  table.parentElement.before(measure);

  document.getElementById("keys-controls").append(...[
    element("label", { class: "select" }, element("span", {}, "Find"), element("input", {
      type: "search", id: "keys-search", placeholder: "part of a key", autocomplete: "off",
      on: { input: event => { wanted = event.target.value.trim().toLowerCase(); page = 0; drawRows(); } },
    })),
    names.length > 1 ? select("Method", names.map(name => [name, labels[name]]), method, name => { method = name; drawHead(); drawRows(); }) : null,
    choice("Measure", [["log_loss", "Log-loss"], ["brier", "Brier"], ["ce", "CE"]], metric, to => { metric = to; drawRows(); }),
  ].filter(Boolean));
  drawHead();
  drawRows();
}
