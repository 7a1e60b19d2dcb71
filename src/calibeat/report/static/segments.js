// All segments: what was said and what happened in each, and the evidence against each forecast.
const MOST_CERTAIN = 1e6;

function evidence(log) {
  if (!known(log)) return NOTHING;
  if (log < Math.log(1.5)) return "none";
  if (log >= Math.log(MOST_CERTAIN)) return `under 1 in ${count(MOST_CERTAIN)}`;
  return `1 in ${count(+Math.exp(log).toPrecision(2))}`;
}

function startSegments(payload) {
  const rows = payload.segments?.rows;
  if (!rows || !document.getElementById("segments-table")) return;
  const labels = Object.fromEntries(payload.methods.map(m => [m.name, m.label])), methods = Object.keys(rows.methods);
  const names = rows.attribute.map((attribute, i) => `${attribute}: ${rows.value[i].join(", ")}`);
  let by = "said";
  const gap = (name, i) => 100 * (rows.rate[i] - rows.methods[name].said[i]);
  const shown = {
    said: (name, i) => [rows.methods[name].said[i], percent(rows.methods[name].said[i])],
    gap: (name, i) => [gap(name, i), number(gap(name, i), 1, true)],
    evidence: (name, i) => [rows.methods[name].log_e[i], evidence(rows.methods[name].log_e[i])],
    log_e: (name, i) => [rows.methods[name].log_e[i], number(rows.methods[name].log_e[i], 2, true)],
  };
  const columns = () => [
    { label: "Segment", sort: "text", value: i => names[i], text: i => names[i] },
    { label: "Events", sort: "high", value: i => rows.events[i], text: i => count(rows.events[i]) },
    { label: "Happened", sort: "high", value: i => rows.rate[i], text: i => percent(rows.rate[i]) },
    ...methods.map(name => ({
      label: labels[name], sort: "high", value: i => shown[by](name, i)[0], text: i => shown[by](name, i)[1], mark: i => rows.methods[name].flagged[i],
    })),
  ];
  const pages = pagedTable("segments", "segment", names, columns);
  document.getElementById("segments-controls").append(pages.search,
    choice("Show", [["said", "What was said"], ["gap", "Happened less said, in points"], ["evidence", "Evidence"], ["log_e", "ln e-value"]], by, to => { by = to; pages.drawRows(); }));
  pages.draw();
}
