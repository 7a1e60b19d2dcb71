// The reliability diagram: what was forecast against what happened, raw beside one method, for the whole log or one period.
function drawReliability(payload, styles) {
  const host = document.getElementById("curves");
  let { reliability } = payload;
  const raw = payload.methods[0].name;
  const others = payload.methods.slice(1).filter(({ name }) => reliability.methods[name]);
  let method = others.some(({ name }) => name === payload.verdict.method) ? payload.verdict.method : others[0]?.name;
  let period = 0, equal = "width";  // bins of equal width, or of equal mass: those are of the whole log

  const names = () => method ? [raw, method] : [raw];
  const mass = reliability.mass ?? {};
  const curve = (name, at = period) => equal === "mass" && at === 0 && mass[name] ? mass[name] : reliability.methods[name][at];

  // Both curves on one x: each has its points where its own mean forecasts are, and nothing at the other's.
  function aligned(when = period) {
    const points = names().flatMap(name => curve(name, when).forecast.map((x, bin) => ({ name, bin, x })).filter(({ x }) => known(x)));
    points.sort((a, b) => a.x - b.x);
    const at = (name, field) => points.map(point => point.name === name ? curve(name, when)[field][point.bin] : undefined);
    const series = names().map((name, i) => ({
      name, label: styles[name].label, style: { ...styles[name], dash: i ? [] : [5, 4], width: 1.8 },
      points: { open: !i, size: i ? 8 : 9 }, values: at(name, "outcome"), low: at(name, "low"), high: at(name, "high"),
    }));
    return { points, series };
  }

  // Same scale for every period, so that moving the slider moves the points and not the frame.
  function frame() {
    let low = 1, high = 0;
    for (const name of names()) {
      for (const { forecast, outcome } of [...reliability.methods[name], ...mass[name] ? [mass[name]] : []]) {
        for (const v of [...forecast, ...outcome]) if (known(v)) { low = Math.min(low, v); high = Math.max(high, v); }
      }
    }
    if (low > high) return [0, 1];
    const step = Math.min(0.1, 10 ** Math.floor(Math.log10(high - low || high || 0.1)));
    const range = [Math.max(0, Math.floor(low / step - 0.2) * step), Math.min(1, Math.ceil(high / step + 0.2) * step)];
    return range[1] - range[0] > 0.65 ? [0, 1] : range;
  }

  function error(name) {
    const { count: counts, forecast, outcome } = curve(name);
    let sum = 0, total = 0;
    counts.forEach((n, bin) => { if (n && known(forecast[bin])) { sum += n * Math.abs(forecast[bin] - outcome[bin]); total += n; } });
    return total ? sum / total : null;
  }

  function binOf({ edge }, bin, digits) {
    if (edge) return `${number(edge[bin], digits)} – ${number(edge[bin + 1] ?? 1, digits)}`;
    return `${number(bin / reliability.bins, 2)} – ${number((bin + 1) / reliability.bins, 2)}`;
  }

  function shape() {
    const { points, series } = aligned(), range = frame();
    const digits = decimals(points.map(({ x }) => x), 3);
    const bin = i => binOf(curve(points[i].name), points[i].bin, digits);
    return {
      x: points.map(({ x }) => x), series, xRange: range, range: () => range,
      title: i => `forecast ${number(points[i].x, digits)} (${bin(i)})`,
      note: (one, i) => {
        const { count: counts } = curve(one.name);
        return `happened ${number(one.values[i], digits)} (${number(one.low[i], digits)} to ${number(one.high[i], digits)}) in ${count(counts[points[i].bin])}`;
      },
    };
  }

  function bars() {
    return {
      x: Array.from({ length: reliability.bins }, (_, bin) => (bin + 0.5) / reliability.bins), xRange: frame(),
      series: names().map(name => ({ name, label: styles[name].label, style: styles[name], values: curve(name).count })),
      title: bin => `forecasts ${number(bin / reliability.bins, 2)} – ${number((bin + 1) / reliability.bins, 2)}`,
    };
  }

  const controls = element("div", { class: "controls" });
  const readout = element("output", { class: "period", "aria-live": "polite" });
  const upper = element("div", { id: "curves-points" }), lower = element("div", { id: "curves-counts" });
  const multiples = element("div", { class: "multiples", role: "group", "aria-label": "Periods" });
  host.append(controls, readout, element("div", { class: "diagrams" }, element("div", {}, upper, lower), multiples));

  function diagonal(self) {
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

  const tick = v => String(+v.toPrecision(4));
  const margin = () => 24 + textWidth(count(Math.max(0, ...Object.values(reliability.methods).flatMap(periods => periods[0].count))));
  const common = { kind: "number", direct: false, xTicks: tick, yTicks: tick };
  const above = makeChart(upper, {
    ...common, square: true, behind: diagonal, names: ["forecast", "happened"], format: v => number(v, 3),
    label: "Reliability: observed frequency against forecast", margin: margin(), ...shape(),
  });
  const below = makeChart(lower, {
    ...common, margin: margin() + 18, bars: "middle", yTicks: null, height: 130, format: v => counted(v, "event"), range: (_, high) => [0, high * 1.06 || 1],
    label: "Events by forecast", ...bars(),
  });

  // One small picture a period, all on the scale of the large one.
  const minis = reliability.periods.length < 2 ? [] : reliability.periods.map(({ label }, at) => {
    const mini = element("div", { class: "mini" });
    const button = element("button", { type: "button", on: { click: () => choose(at) } }, mini, label);
    multiples.append(button);
    return { mini, button, chart: null };
  });

  function drawMini({ mini, chart }, at) {
    chart?.destroy();
    const { series } = aligned(at);
    const axis = { show: false };
    return new uPlot({
      width: Math.max(60, mini.clientWidth), height: 96, legend: { show: false }, cursor: { show: false }, axes: [axis, axis], padding: [4, 4, 4, 4],
      scales: { x: { time: false, range: () => frame() }, y: { range: () => frame() } },
      series: [{}, ...series.map(({ style, points: { open } }) => ({
        stroke: () => colour(style.hue), width: 1.4, dash: open ? [3, 2] : [], spanGaps: true,
        points: { show: true, size: 4, width: 1, fill: () => colour(open ? "paper" : style.hue) } }))],
      hooks: { drawAxes: [diagonal] },
    }, miniData(at), mini);
  }

  function miniData(at) {
    const { points, series } = aligned(at);
    return [points.map(({ x }) => x), ...series.map(({ values }) => values)];
  }

  const drawMinis = () => minis.forEach((one, at) => { one.chart = drawMini(one, at); });
  drawMinis();
  charts.add({ redraw: () => minis.forEach(({ chart }) => chart.redraw()) });
  new ResizeObserver(() => { if (minis.length && minis[0].mini.clientWidth !== minis[0].chart.width) drawMinis(); }).observe(multiples);

  function show() {
    const { label, count: events } = reliability.periods[period];
    readout.textContent = `${label}: ${counted(events, "event")}. Calibration error ${names().map(name => `${styles[name].label} ${number(error(name))}`).join(", ")}.`;
    if (slider) slider.value = period;
    slider?.setAttribute("aria-valuetext", label);
    minis.forEach(({ button }, at) => button.setAttribute("aria-pressed", String(at === period)));
  }

  function choose(at) {
    period = at;
    if (period !== 0 && equal === "mass") {
      equal = "width";
      const input = bins?.querySelector("input[value=width]");
      if (input) input.checked = true;
    }
    lower.hidden = equal === "mass";  // as many events in each: nothing to count
    readout.setAttribute("aria-live", "polite");
    above.update(shape());
    below.update(bars());
    show();
  }

  let slider = null, bins = null;
  if (Object.keys(mass).length) {
    bins = choice("Bins", [["width", "of equal width"], ["mass", "of equal mass"]], equal, to => { equal = to; choose(equal === "mass" ? 0 : period); });
  }
  if (reliability.periods.length > 1) {
    slider = element("input", { type: "range", min: 0, max: reliability.periods.length - 1, value: 0, step: 1, id: "period",
      on: { input: event => choose(Number(event.target.value)) } });
    controls.append(element("label", { class: "slider" }, element("span", {}, "Period"), slider));
  }
  if (others.length > 1) {
    controls.prepend(select("Raw beside", others.map(({ name, label }) => [name, label]), method, name => {
      method = name;
      choose(period);
      drawMinis();
    }));
  }
  if (bins) controls.append(bins);
  show();

  // New numbers of the same periods: the chosen one, the focus and open tables stay, and nothing is announced.
  function refresh(next) {
    const labels = ({ periods }) => periods.map(({ label }) => label).join("\n");
    if (labels(next) !== labels(reliability)) return false;
    reliability = next;
    readout.setAttribute("aria-live", "off");
    above.refresh({ ...shape(), margin: margin() });
    below.refresh({ ...bars(), margin: margin() + 18 });
    minis.forEach(({ chart }, at) => chart.setData(miniData(at)));
    show();
    return true;
  }
  return { refresh, choose, chosen: () => reliability.periods[period].label };
}
