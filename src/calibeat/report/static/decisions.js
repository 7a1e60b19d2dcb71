// Decisions: what was saved over time, and net benefit by threshold.
function drawDecisions(payload, styles) {
  const { decisions } = payload;
  if (!decisions) return;
  drawSaved(payload, styles, decisions);
  drawBenefit(payload, styles, decisions.curve);
}

function drawSaved(payload, styles, { over_time: path, costs }) {
  const host = document.getElementById("saved");
  if (!host || !path) return;
  const axis = axisOf(path.by, path.x), span = axis.x[axis.x.length - 1] - axis.x[0];
  const able = payload.methods.slice(1).filter(({ name }) => path.methods[name]).map(({ name }) => name);
  const first = able.includes(payload.verdict.method) ? payload.verdict.method : able[0];
  const unit = costs.given ? "" : " missed events";
  const shape = name => {
    const [values, low, high] = [0, 1, 2].map(k => path.methods[name].map(triple => triple[k]));
    const digits = Math.max(...high.map(Math.abs)) >= 100 ? 0 : 2;
    return {
      series: [{ name, label: styles[name].label, style: { ...styles[name], dash: [] }, values, low, high }],
      label: `What ${styles[name].label} had saved against the raw score`, format: v => number(v, digits, true) + unit,
      note: (_, i) => `${number(values[i], digits, true)}${unit} (${number(low[i], digits, true)} to ${number(high[i], digits, true)})`,
    };
  };
  const controls = element("div", { class: "controls" });
  host.append(controls);
  const chart = makeChart(host, {
    ...axis, ...shape(first), height: 220, bandOnly: true, rules: [{ at: 0, always: true }],
    title: i => axis.kind === "time" ? moment(axis.x[i], span) : `event ${count(axis.x[i])}`,
  });
  if (able.length > 1) controls.append(select("Saved by", able.map(name => [name, styles[name].label]), first, name => chart.update(shape(name))));
  else controls.remove();
}

function drawBenefit(payload, styles, curve) {
  const host = document.getElementById("benefit");
  const per1000 = values => values.map(v => known(v) ? 1000 * v : null);
  const series = perMethod(payload, styles, name => curve.methods[name] && per1000(curve.methods[name]));
  series.push({ name: "\u0000everyone", label: "act on all", style: { hue: "muted", dash: [2, 3], width: 1.4 }, values: per1000(curve.everyone) });
  const most = Math.max(0, ...series.flatMap(one => one.values.filter(known)));
  makeChart(host, {
    kind: "number", x: curve.threshold, xRange: [0, 1], xTicks: v => `${+(100 * v).toPrecision(3)}\u00a0%`, series,
    label: "Net benefit per 1,000 events by threshold", names: ["act from this forecast on", "net benefit per 1,000"], height: 300, direct: false, right: 34,
    title: i => `act from ${percent(curve.threshold[i])} on`, format: v => number(v, 1, true), rules: [{ at: 0 }],
    first: [...shownAtFirst(payload).slice(0, 3), "\u0000everyone"], range: () => [-0.12 * (most || 1), 1.06 * (most || 1)],
  });
}
