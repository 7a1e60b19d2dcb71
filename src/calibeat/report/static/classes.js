// Many classes: a small reliability diagram for each, and where their priors went.
function drawClasses(payload, styles) {
  if (!payload.classes) return;
  const table = document.getElementById("classes-table");
  makeSortable(table);
  table.tHead.rows[0].cells[1].setAttribute("aria-sort", "descending");
  drawPanels(payload, styles);
  drawTimes(payload);
  drawShares(payload, styles);
}

// The method beside the raw scores: the choice, or the last of the others.
function besideRaw(payload) {
  const others = payload.methods.slice(1).map(({ name }) => name);
  return others.includes(payload.verdict.method) ? payload.verdict.method : others.at(-1);
}

const FEW_IN_BIN = 10;

function drawPanels(payload, styles) {
  const host = document.getElementById("panels"), { classes } = payload;
  const raw = payload.methods[0].name, others = payload.methods.slice(1);
  let method = besideRaw(payload), chosen = 0;
  const names = () => method ? [raw, method] : [raw];
  const curve = (name, at) => classes.methods[name].curves[at];

  // One scale for all: the panels can be compared.
  const most = () => Math.max(0.05, ...names().flatMap(name => classes.methods[name].curves.flatMap(({ forecast, outcome, count: counts }) =>
    [...forecast, ...outcome].filter((v, i) => known(v) && counts[i % counts.length] > 0))));
  const range = () => { const top = most(); return [0, top > 0.65 ? 1 : Math.ceil(top * 11) / 10]; };

  // Both curves on one x. A small panel has no room for intervals, so bins of few events are left out of it.
  const points = (at, least = 1) => {
    const all = names().flatMap(name => curve(name, at).forecast.map((x, bin) => ({ name, bin, x }))
      .filter(({ x, bin }) => known(x) && curve(name, at).count[bin] >= least));
    return all.sort((a, b) => a.x - b.x);
  };
  const values = (all, at, name, field) => all.map(point => point.name === name ? curve(name, at)[field][point.bin] : undefined);

  const controls = element("div", { class: "controls" });
  const panels = element("div", { class: "multiples panels", role: "group", "aria-label": "Classes" });
  const large = element("div", { id: "panel" });
  const readout = element("output", { class: "period", "aria-live": "polite" });
  host.append(controls, element("div", { class: "diagrams" }, element("div", {}, readout, large), panels));

  const tick = v => String(+v.toPrecision(4));
  function shape() {
    const all = points(chosen), span = range();
    const digits = decimals(all.map(({ x }) => x), 3);
    return {
      x: all.map(({ x }) => x), xRange: span, range: () => span,
      series: names().map((name, i) => ({
        name, label: styles[name].label, style: { ...styles[name], dash: i ? [] : [5, 4], width: 1.8 }, points: { open: !i, size: i ? 8 : 9 },
        values: values(all, chosen, name, "outcome"), low: values(all, chosen, name, "low"), high: values(all, chosen, name, "high"),
      })),
      title: i => `forecast ${number(all[i].x, digits)}`,
      note: (one, i) => `happened ${number(one.values[i], digits)} in ${count(curve(one.name, chosen).count[all[i].bin])}`,
      label: `Reliability of the class ${classes.names[chosen]}`,
    };
  }

  const chart = makeChart(large, {
    kind: "number", direct: false, xTicks: tick, yTicks: tick, margin: 44, square: true, behind: diagonalLine, names: ["forecast", "happened"],
    format: v => number(v, 3), ...shape(),
  });

  const minis = classes.names.map((name, at) => {
    const mini = element("div", { class: "mini" });
    const button = element("button", { type: "button", title: name, on: { click: () => choose(at) } }, mini, element("bdi", { class: "class-name" }, name));
    panels.append(button);
    return { mini, button, chart: null };
  });

  function drawMini({ mini, chart: old }, at) {
    old?.destroy();
    const all = points(at, FEW_IN_BIN), span = range(), axis = { show: false };
    return new uPlot({
      width: Math.max(60, mini.clientWidth), height: 96, legend: { show: false }, cursor: { show: false }, axes: [axis, axis], padding: [4, 4, 4, 4],
      scales: { x: { time: false, range: () => span }, y: { range: () => span } },
      series: [{}, ...names().map((name, i) => ({
        stroke: () => colour(styles[name].hue), width: 1.4, dash: i ? [] : [3, 2], spanGaps: true,
        points: { show: true, size: 4, width: 1, fill: () => colour(i ? styles[name].hue : "paper") } }))],
      hooks: { drawAxes: [diagonalLine] },
    }, [all.map(({ x }) => x), ...names().map(name => values(all, at, name, "outcome"))], mini);
  }

  const drawMinis = () => minis.forEach((one, at) => { one.chart = drawMini(one, at); });
  drawMinis();
  charts.add({ redraw: () => minis.forEach(one => one.chart.redraw()) });
  new ResizeObserver(() => { if (minis.length && minis[0].mini.clientWidth !== minis[0].chart.width) drawMinis(); }).observe(panels);

  function show() {
    const errors = names().map(name => `${styles[name].label} ${number(classes.methods[name].ce[chosen])}`).join(", ");
    readout.replaceChildren(element("bdi", {}, classes.names[chosen]), `: ${counted(classes.count[chosen], "label")}. Calibration error ${errors}.`);
    minis.forEach(({ button }, at) => button.setAttribute("aria-pressed", String(at === chosen)));
  }
  function choose(at) {
    chosen = at;
    chart.update(shape());
    show();
  }
  if (others.length > 1) {
    controls.append(select("Raw beside", others.map(({ name, label }) => [name, label]), method, name => {
      method = name;
      choose(chosen);
      drawMinis();
    }));
  } else controls.remove();
  show();
}

function diagonalLine(self) {
  const { ctx } = self, { min, max } = self.scales.x;
  ctx.save();
  ctx.strokeStyle = colour("muted");
  ctx.lineWidth = uPlot.pxRatio;
  ctx.beginPath();
  ctx.moveTo(self.valToPos(min, "x", true), self.valToPos(min, "y", true));
  ctx.lineTo(self.valToPos(max, "x", true), self.valToPos(max, "y", true));
  ctx.stroke();
  ctx.restore();
}

function priorAxis(priors) {
  const axis = axisOf(priors.by, priors.x), span = axis.x[axis.x.length - 1] - axis.x[0];
  return { ...axis, title: i => axis.kind === "time" ? moment(axis.x[i], span) : `event ${count(axis.x[i])}` };
}

// × 2 is as far from × 1 as × ½: the scale is that of the logarithm.
const asTimes = v => `×\u00a0${v < -1e-9 && Number.isInteger(v) ? `1/${2 ** -v}` : +(2 ** v).toPrecision(2)}`;

function drawTimes(payload) {
  const host = document.getElementById("times"), { names, priors } = payload.classes;
  if (!host) return;
  const lines = priors.times.map(line => line.map(v => known(v) && v > 0 ? Math.log2(v) : null));
  const moved = lines.map((line, at) => ({ at, by: Math.max(...line.filter(known)) - Math.min(...line.filter(known)) }));
  moved.sort((a, b) => b.by - a.by);
  const series = names.map((name, at) => ({ name: `${at}`, label: shortened(name), values: lines[at], style: { ...styleOf(at, false), width: 1.8 } }));
  makeChart(host, {
    ...priorAxis(priors), series, label: "How many times as common each class is as the scores assume, over time",
    first: series.length > SHOWN_AT_FIRST ? moved.slice(0, SHOWN_AT_FIRST).map(({ at }) => `${at}`) : null,
    format: asTimes, yTicks: asTimes, rules: [{ at: 0, always: true }],
  });
}

const shortened = name => name.length > 24 ? `${name.slice(0, 23)}…` : name;

function drawShares(payload, styles) {
  const host = document.getElementById("shares"), { names, priors } = payload.classes;
  if (!host) return;
  const method = besideRaw(payload);
  const shape = at => ({
    series: [
      { name: "happened", label: "happened", style: { hue: "ink", dash: [], width: 2 }, values: priors.happened[at] },
      { name: "scores", label: "raw score", style: { hue: "grey", dash: [6, 4], width: 2 }, values: priors.scores[at] },
      ...method ? [{ name: method, label: styles[method].label, style: styles[method], values: priors.forecasts[method][at] }] : [],
    ],
    label: `Share of the class ${names[at]} over time`,
  });
  const controls = element("div", { class: "controls" });
  host.append(controls);
  const chart = makeChart(host, {
    ...priorAxis(priors), format: percent, yTicks: v => `${+(100 * v).toPrecision(6)}\u00a0%`, height: 240, ...shape(0),
  });
  controls.append(select("Class", names.map((name, at) => [`${at}`, shortened(name)]), "0", at => chart.update(shape(Number(at)))));
}
