// The pictures over time: errors, drift, parameters, lanes, evidence; and the delays.
const METRICS = [["ce", "Calibration error"], ["log_loss", "Log-loss"], ["brier", "Brier score"]];

function axisOf(by, values) {
  return by === "time" ? { kind: "time", x: values.map(seconds) } : { kind: "event", x: values };
}

// Windows stand at their middle; two that share it (all events at one moment) would fall on each other.
function windowAxis(windows) {
  const from = axisOf(windows.by, windows.start), to = axisOf(windows.by, windows.end).x;
  return { kind: from.kind, x: from.x.map((start, i) => (start + to[i]) / 2), from: from.x, to };
}

function windowTitle(windows, axis) {
  const span = axis.to[axis.to.length - 1] - axis.from[0];
  return i => {
    const when = axis.kind === "time" ? `${moment(axis.from[i], span)} – ${moment(axis.to[i], span)}` :
      `events ${count(axis.from[i])} – ${count(axis.to[i])}`;
    return `${when} · ${count(windows.count[i])} judged`;
  };
}

// The raw score, the choice, and the best of the rest.
function shownAtFirst(payload) {
  const loss = Object.fromEntries(payload.table.map(row => [row.method, row.log_loss ?? Infinity]));
  const raw = payload.methods[0].name;
  const rest = payload.methods.map(m => m.name).filter(n => n !== raw && n !== payload.verdict.method).sort((a, b) => loss[a] - loss[b]);
  return [...new Set([raw, payload.verdict.method, ...rest])].slice(0, SHOWN_AT_FIRST);
}

function perMethod(payload, styles, values) {
  return payload.methods.filter(({ name }) => values(name)).map(({ name, label }) => ({ name, label, style: styles[name], values: values(name) }));
}

function drawWindows(payload, styles) {
  const host = document.getElementById("windows"), { windows } = payload;
  const axis = windowAxis(windows);
  const shape = metric => {
    const series = perMethod(payload, styles, name => windows.methods[name]?.[metric]);
    const digits = decimals(series.flatMap(one => one.values));
    return { series, format: v => number(v, digits), label: `${METRICS.find(([key]) => key === metric)[1]} over time, by method` };
  };
  const controls = element("div", { class: "controls" });
  host.append(controls);
  const chart = makeChart(host, { ...axis, ...shape("ce"), title: windowTitle(windows, axis), first: shownAtFirst(payload) });
  controls.append(choice("Show", METRICS, "ce", metric => chart.update(shape(metric))));
}

function drawDrift(payload) {
  const host = document.getElementById("drift"), { windows } = payload;
  if (!host) return;
  const axis = windowAxis(windows);
  makeChart(host, {
    ...axis, title: windowTitle(windows, axis), format: percent, yTicks: v => `${+(100 * v).toPrecision(6)}\u00a0%`, height: 200, label: "Base rate and mean raw score over time",
    series: [
      { name: "happened", label: "happened", style: { hue: "ink", dash: [], width: 2 }, values: windows.base_rate },
      { name: "said", label: "raw score", style: { hue: "grey", dash: [6, 4], width: 2 }, values: windows.mean_score },
    ],
  });
}

function lineSet(lines) {
  return Object.entries(lines).map(([name, values], i) => ({ name, label: name, values, style: { ...styleOf(i, false), ...(i ? {} : { hue: "blue", dash: [] }), width: 1.8 } }));
}

function drawLearnt(payload) {
  const host = document.getElementById("params"), { trajectories } = payload;
  if (!host) return;
  const axis = axisOf(trajectories.by, trajectories.x);
  const span = axis.x[axis.x.length - 1] - axis.x[0];
  const title = i => axis.kind === "time" ? moment(axis.x[i], span) : `event ${count(axis.x[i])}`;
  const labels = Object.fromEntries(payload.methods.map(m => [m.name, m.label]));
  const follow = (place, field, noun, range) => {
    const able = Object.keys(trajectories.methods).filter(name => Object.keys(trajectories.methods[name][field] ?? {}).length);
    if (!place || !able.length) return place?.remove();
    const first = able.includes(payload.verdict.method) ? payload.verdict.method : able[0];
    const shape = name => {
      const series = lineSet(trajectories.methods[name][field]);
      const digits = decimals(series.flatMap(one => one.values), 3);
      return { series, format: v => number(v, digits), label: `${noun} of ${labels[name] ?? name} over time` };
    };
    const controls = element("div", { class: "controls" });
    place.append(controls);
    const chart = makeChart(place, { ...axis, ...shape(first), title, range, height: 240, rules: range ? [] : [{ at: 0 }] });
    if (able.length > 1) controls.append(select(`${noun} of`, able.map(name => [name, labels[name] ?? name]), first, name => chart.update(shape(name))));
    else controls.append(element("p", { class: "small" }, `${noun} of ${labels[first] ?? first}`));
  };
  follow(host, "params", "Parameters", null);
  follow(document.getElementById("lanes"), "lanes", "Weights of the lanes", () => [0, 1.02]);
}

function drawEvidence(payload, styles) {
  const host = document.getElementById("evalue"), { evalue } = payload;
  if (!host) return;
  const series = perMethod(payload, styles, name => name !== payload.methods[0].name && evalue.methods[name]);
  const axis = axisOf(evalue.by, evalue.x), span = axis.x[axis.x.length - 1] - axis.x[0];
  makeChart(host, {
    ...axis, series, label: "Logarithm of the e-value over time, by method", first: [...shownAtFirst(payload)],
    title: i => axis.kind === "time" ? moment(axis.x[i], span) : `event ${count(axis.x[i])}`,
    format: v => number(v, 1), note: (one, i) => `${number(one.values[i], 1)} (${odds(one.values[i])})`,
    rules: [{ at: 0, always: true }, { at: Math.log(20), label: "20 to 1", always: true }],
  });
}

function drawDelays(payload) {
  const host = document.getElementById("histogram"), { delay } = payload;
  if (!host) return;
  const { edges, count: counts } = delay.histogram;
  if (!counts.length) { host.remove(); return; }
  const said = delay.unit === "time" ? duration : v => number(v, 0);
  makeChart(host, {
    kind: "number", x: counts.map((_, i) => i + 0.5), bars: "middle", direct: false, height: 200, xRange: [0, counts.length],
    xTicks: at => Number.isInteger(at) && known(edges[at]) ? said(edges[at]) : "",
    title: i => `${said(edges[i])} – ${said(edges[i + 1])}`, format: v => `${count(v)} outcomes`, range: (_, high) => [0, high * 1.06 || 1],
    label: "Histogram of delays",
    series: [{ name: "outcomes", label: "outcomes", style: { hue: "blue", dash: [], width: 1 }, values: counts }],
  });
}
