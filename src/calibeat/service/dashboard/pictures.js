// The pictures of one stream. Each gives { draw(view), refresh(view) }: anew for another stream, in place for new numbers.
const STYLES = {
  raw: { label: "raw score", hue: "grey", dash: [6, 4], width: 1.8 },
  calibrated: { label: "calibrated", hue: "blue", dash: [], width: 2.4 },
  happened: { label: "happened", hue: "ink", dash: [], width: 1.6 },
};
const line = (name, values, more = {}) => ({ name, label: STYLES[name].label, style: STYLES[name], values, ...more });

// A chart that is made when it is first drawn: before that its place has no width.
function lazily(host, shape, fixed) {
  let chart = null;
  const put = how => view => {
    if (chart) chart[how](shape(view));
    else chart = makeChart(host, { ...fixed, ...shape(view) });
  };
  return { draw: put("update"), refresh: put("refresh") };
}

// Points stand at the middle of their hours.
function timeAxis({ start, seconds }) {
  const x = start.map(at => at + seconds / 2), hourly = seconds < 86400;
  const from = at => hourly ? `${asDate(at)}, ${asMinute(at)}` : asDate(at);
  const to = at => hourly ? asMinute(at) : asDate(at - 1);
  return { x, when: i => seconds === 86400 ? asDate(start[i]) : `${from(start[i])} – ${to(start[i] + seconds)}` };
}

function drawOverTime(host) {
  return lazily(host, ({ series, alarms }) => {
    const { x, when } = timeAxis(series);
    return {
      x, title: i => `${when(i)} · ${counted(series.outcomes[i], "outcome")}`, behind: self => markAlarms(self, alarms),
      series: [line("happened", series.happened, { low: series.low, high: series.high }), line("calibrated", series.forecast), line("raw", series.score)],
      note: (one, i) => one.low ? `${percent(one.values[i])} (${percent(one.low[i])} to ${percent(one.high[i])})` : percent(one.values[i]),
    };
  }, { kind: "time", bandOnly: true, format: percent, yTicks: v => `${+(100 * v).toPrecision(6)}\u00a0%`, label: "Mean forecast, mean raw score and how often it happened, over time" });
}

// An upright line where an alarm was raised; the list of alarms says the same in words.
function markAlarms(self, alarms) {
  const { ctx, bbox } = self, scale = uPlot.pxRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour("bad");
  ctx.lineWidth = scale;
  ctx.setLineDash([4 * scale, 3 * scale]);
  ctx.font = `${11 * scale}px system-ui, sans-serif`;
  for (const { time, page } of alarms) {
    const at = Math.round(self.valToPos(time, "x", true));
    if (!page || at < bbox.left || at > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    ctx.textAlign = at > bbox.left + bbox.width - 40 * scale ? "right" : "left";
    ctx.fillText("alarm", at + (ctx.textAlign === "left" ? 4 : -4) * scale, bbox.top + 11 * scale);
  }
  ctx.restore();
}

function drawLosses(host) {
  return lazily(host, ({ series }) => {
    const { x, when } = timeAxis(series), digits = decimals([...series.log_loss, ...series.raw_log_loss]);
    return {
      x, title: i => `${when(i)} · ${counted(series.outcomes[i], "outcome")}`, format: v => number(v, digits),
      series: [line("calibrated", series.log_loss), line("raw", series.raw_log_loss)],
    };
  }, { kind: "time", label: "Log-loss of the raw score and of the calibrated forecast, over time" });
}

function drawArrivals(host) {
  return lazily(host, ({ series }) => {
    const { x, when } = timeAxis(series);
    return {
      x, title: when,
      series: [
        { name: "forecasts", label: "forecasts", style: { hue: "grey", dash: [], width: 1, area: true }, values: series.forecasts },
        { name: "outcomes", label: "with an outcome learnt", style: { hue: "blue", dash: [], width: 1, area: true }, values: series.outcomes },
      ],
    };
  }, { kind: "time", bars: "middle", direct: false, height: 180, format: count, range: (_, high) => [0, high * 1.06 || 1], label: "Forecasts, and how many of them have an outcome, over time" });
}

function drawMap(host) {
  const tick = v => String(+v.toPrecision(2));
  return lazily(host, ({ map }) => ({
    x: map.score, title: i => `score ${number(map.score[i], 2)}`,
    series: [line("calibrated", map.forecast), line("raw", map.score)],
  }), {
    kind: "number", square: true, direct: false, names: ["score", "forecast"], xTicks: tick, yTicks: tick, xRange: [0, 1], range: () => [0, 1],
    format: v => number(v, 3), label: "What each score becomes now",
  });
}

// Delays by powers of two seconds: all of them between the first and the last, also empty ones.
function delayBins(delays) {
  const counts = new Map(delays.map(({ within, count: n }) => [Math.round(Math.log2(within)), n]));
  if (!counts.size) return [];
  const first = Math.min(...counts.keys()), last = Math.max(...counts.keys());
  return Array.from({ length: last - first + 1 }, (_, i) => ({ within: 2 ** (first + i), from: first + i ? 2 ** (first + i - 1) : 0, count: counts.get(first + i) ?? 0 }));
}

// The bin that holds the middle one; its end is a safe thing to say.
function medianDelay(delays) {
  const bins = delayBins(delays), half = bins.reduce((sum, bin) => sum + bin.count, 0) / 2;
  let sum = 0;
  for (const bin of bins) if ((sum += bin.count) >= half) return bin.within;
  return null;
}

function drawDelayBins(host) {
  let bins = [];
  return lazily(host, ({ delays }) => {
    bins = delayBins(delays);
    return {
      x: bins.map((_, i) => i + 0.5), xRange: [0, Math.max(1, bins.length)],
      title: i => `${roughly(bins[i].from)} – ${roughly(bins[i].within)}`,
      series: [{ name: "outcomes", label: "outcomes", style: { hue: "blue", dash: [], width: 1 }, values: bins.map(bin => bin.count) }],
    };
  }, {
    kind: "number", bars: "middle", direct: false, right: 34, height: 180, format: v => counted(v, "outcome"), range: (_, high) => [0, high * 1.06 || 1],
    xTicks: at => Number.isInteger(at) && bins[at] ? roughly(bins[at].from) : at === bins.length && at ? roughly(bins[at - 1].within) : "",
    label: "How late outcomes came",
  });
}

// The report's diagram. Another stream, or a new week, makes it anew.
function drawCurves(host) {
  let drawn = null, mine = new Set();
  const draw = view => {
    const chosen = drawn?.chosen();
    for (const chart of mine) charts.delete(chart);
    const before = new Set(charts);
    host.replaceChildren();
    drawn = drawReliability({
      methods: [{ name: "raw", label: "raw score" }, { name: "calibrated", label: "calibrated" }], verdict: { method: "calibrated" }, reliability: view.reliability,
    }, { raw: { ...STYLES.raw, dash: [] }, calibrated: STYLES.calibrated });
    mine = new Set([...charts].filter(chart => !before.has(chart)));
    const at = view.reliability.periods.findIndex(({ label }) => label === chosen);
    if (at > 0) drawn.choose(at);
  };
  return { draw, refresh: view => { if (!drawn?.refresh(view.reliability)) draw(view); } };
}
