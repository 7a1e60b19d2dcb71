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

function windowTitle(windows, axis, reach) {
  const last = axis.to.length - 1, span = axis.to[last] - axis.from[0];
  return i => {
    const first = Math.max(0, i - reach), end = Math.min(last, i + reach);
    const when = axis.kind === "time" ? `${moment(axis.from[first], span)} – ${moment(axis.to[end], span)}` :
      `events ${count(axis.from[first])} – ${count(axis.to[end])}`;
    return `${when} · ${count(windows.count.slice(first, end + 1).reduce((a, b) => a + b, 0))} judged`;
  };
}

// Many windows make a thicket. Smoothed, a point is the mean of the windows around it, by their events.
const MANY_WINDOWS = 60;

function smoothed(values, counts, reach) {
  return values.map((_, i) => {
    let sum = 0, weight = 0;
    for (let j = Math.max(0, i - reach); j <= Math.min(values.length - 1, i + reach); j++) {
      if (known(values[j])) { sum += counts[j] * values[j]; weight += counts[j]; }
    }
    return weight ? sum / weight : null;
  });
}

function smoother(windows) {
  const n = windows.count.length, most = n > MANY_WINDOWS ? Math.round(n / 50) : 0;
  const reach = how => how === "mean" ? most : 0;
  const chooser = call => most ? choice("Points", [["mean", `mean of ${2 * most + 1} windows`], ["each", "each window"]], "mean", call) : null;
  return { of: (values, how) => reach(how) ? smoothed(values, windows.count, reach(how)) : values, reach, chooser };
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
  const smooth = smoother(windows);
  let metric = "ce", how = "mean";
  const shape = () => {
    const series = perMethod(payload, styles, name => windows.methods[name] && smooth.of(windows.methods[name][metric], how));
    const digits = decimals(series.flatMap(one => one.values));
    return { series, title: windowTitle(windows, axis, smooth.reach(how)), format: v => number(v, digits), label: `${METRICS.find(([key]) => key === metric)[1]} over time, by method` };
  };
  const controls = element("div", { class: "controls" });
  host.append(controls);
  const chart = makeChart(host, { ...axis, ...shape(), first: shownAtFirst(payload) });
  controls.append(...[
    choice("Show", METRICS, metric, to => { metric = to; chart.update(shape()); }),
    smooth.chooser(to => { how = to; chart.update(shape()); }),
  ].filter(Boolean));
}

function drawDrift(payload) {
  const host = document.getElementById("drift"), { windows } = payload;
  if (!host) return;
  const axis = windowAxis(windows);
  const smooth = smoother(windows);
  const shape = how => ({
    title: windowTitle(windows, axis, smooth.reach(how)),
    series: [
      { name: "happened", label: "happened", style: { hue: "ink", dash: [], width: 2 }, values: smooth.of(windows.base_rate, how) },
      { name: "said", label: payload.classes ? "raw confidence" : "raw score", style: { hue: "grey", dash: [6, 4], width: 2 }, values: smooth.of(windows.mean_score, how) },
    ],
  });
  const controls = element("div", { class: "controls" });
  host.append(controls);
  const chart = makeChart(host, {
    ...axis, format: percent, yTicks: v => `${+(100 * v).toPrecision(6)}\u00a0%`, height: 200,
    label: payload.classes ? "Accuracy and mean confidence of the raw scores over time" : "Base rate and mean raw score over time",
    ...shape("mean"),
  });
  const chooser = smooth.chooser(how => chart.update(shape(how)));
  chooser ? controls.append(chooser) : controls.remove();
}

function lineSet(lines, area) {
  return Object.entries(lines).map(([name, values], i) => {
    const style = i ? styleOf(i, false) : styleOf(i, true);
    return { name, label: name, values, style: { ...style, width: 1.8, area } };
  });
}

function drawLearnt(payload) {
  const host = document.getElementById("params"), { trajectories } = payload;
  if (!host) return;
  const axis = axisOf(trajectories.by, trajectories.x);
  const span = axis.x[axis.x.length - 1] - axis.x[0];
  const title = i => axis.kind === "time" ? moment(axis.x[i], span) : `event ${count(axis.x[i])}`;
  const labels = Object.fromEntries(payload.methods.map(m => [m.name, m.label]));
  const follow = (place, field, noun, more) => {
    const able = Object.keys(trajectories.methods).filter(name => Object.keys(trajectories.methods[name][field] ?? {}).length);
    if (!place || !able.length) return place?.remove();
    const first = able.includes(payload.verdict.method) ? payload.verdict.method : able[0];
    const shape = name => {
      const series = lineSet(trajectories.methods[name][field], more.stacked);
      const digits = decimals(series.flatMap(one => one.values), 3);
      return { series, format: v => number(v, digits), label: `${noun} of ${labels[name] ?? name} over time` };
    };
    const controls = element("div", { class: "controls" });
    place.append(controls);
    const chart = makeChart(place, { ...axis, ...shape(first), title, height: 240, ...more });
    if (able.length > 1) controls.append(select(`${noun} of`, able.map(name => [name, labels[name] ?? name]), first, name => chart.update(shape(name))));
    else controls.append(element("p", { class: "small" }, `${noun} of ${labels[first] ?? first}`));
  };
  follow(host, "params", "Parameters", { rules: [{ at: 0 }] });
  follow(document.getElementById("lanes"), "lanes", "Weights of the lanes", { stacked: axis.x.length > 1, range: () => [0, 1] });
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
    rules: [{ at: 0, always: true }, { at: evalue.threshold, label: `${count(Math.exp(evalue.threshold))} to 1`, always: true }],
  });
}

function drawDelays(payload) {
  const host = document.getElementById("histogram"), { delay } = payload;
  if (!host) return;
  const { edges, count: counts } = delay.histogram;
  if (!counts.length) { host.remove(); return; }
  const shown = delay.unit === "time" ? duration : v => number(v, 0);
  makeChart(host, {
    kind: "number", x: counts.map((_, i) => i + 0.5), bars: "middle", direct: false, right: 34, height: 200, xRange: [0, counts.length],
    xTicks: at => Number.isInteger(at) && known(edges[at]) ? shown(edges[at]) : "",
    title: i => `${shown(edges[i])} – ${shown(edges[i + 1])}`, format: v => counted(v, "outcome"), range: (_, high) => [0, high * 1.06 || 1],
    label: "Histogram of delays",
    series: [{ name: "outcomes", label: "outcomes", style: { hue: "blue", dash: [], width: 1 }, values: counts }],
  });
}
