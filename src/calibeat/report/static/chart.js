// One interactive chart: uPlot draws; here are the legend of real buttons, the pointer's numbers, the keyboard and the table.
const charts = new Set();

function redrawAll() {
  colours = null;
  for (const chart of charts) chart.redraw();
}

// Lines that can be told apart are few: beyond these, a method waits in the legend.
const SHOWN_AT_FIRST = 5;

/* spec: { x, kind: "time" | "event" | "number", title(i), series: [{ name, label, style, values, low?, high?, points? }],
           format, label, note?(name, i), range?(min, max), xRange?, names?: [x, y], right?, rules?: [{ at, label }], height?, square?, bars?, stacked?,
           behind?(u), xTicks?, direct?, log?, bandOnly?: a band without a stroke at each point, first?: names shown at first } */
function makeChart(host, spec) {
  const name = host.id;
  const legend = element("div", { class: "legend", role: "group", "aria-label": "Shown in this picture" });
  const plot = element("div", { class: "plot", tabindex: 0, role: "application", "aria-roledescription": "chart" });
  const tip = element("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const live = element("p", { class: "sr-only", role: "status", "aria-live": "polite" });
  const table = element("details", { class: "as-table" }, element("summary", {}, "Show as table"));
  // Controls stay on the screen: what they chose is written on paper.
  const caption = element("p", { class: "on-paper small" });
  host.append(caption, legend, plot, live, table);
  const hidden = new Set();
  let u = null, at = null, labelled = "";

  const shown = () => spec.series.filter(series => !hidden.has(series.name));
  const span = () => spec.x.length ? spec.x[spec.x.length - 1] - spec.x[0] : 0;

  function build() {
    const names = spec.series.map(series => series.name).join("\n");
    if (names !== labelled) {
      labelled = names;
      hidden.clear();
      if (spec.first) hideAllBut(spec.first);
      drawLegend();
    }
    describe();
    u?.destroy();
    at = null;
    tip.hidden = true;
    u = new uPlot(options(), data(), plot);
    plot.append(tip);
    table.open = false;
  }

  function describe() {
    caption.textContent = `${spec.label}.`;
    plot.setAttribute("aria-label", `${spec.label}. Left and right arrow keys move through the points.`);
  }

  // New numbers of the same lines: what the reader has hidden, opened or pointed at stays, and nothing is announced.
  function refresh(changed) {
    spec = { ...spec, ...changed };
    if (spec.series.map(series => series.name).join("\n") !== labelled) { build(); return; }
    describe();
    u.setData(data());
    if (at !== null) { at = Math.min(at, spec.x.length - 1); u.setCursor({ left: u.valToPos(spec.x[at], "x"), top: 10 }); }
    if (table.open) fillTable();
  }

  function drawLegend() {
    legend.replaceChildren(...spec.series.map(series => element("button", {
      type: "button", "aria-pressed": String(!hidden.has(series.name)), "data-series": series.name,
      on: { click: () => toggle(series.name) },
    }, swatch(series.style), element("span", {}, series.label))));
    legend.hidden = spec.series.length < 2;
    if (spec.first && spec.series.length > SHOWN_AT_FIRST) {
      legend.append(element("button", { type: "button", class: "all", on: { click: () => {
        if (hidden.size) hidden.clear();
        else hideAllBut(spec.first);
        apply();
      } } }, hidden.size ? "Show all" : "Show fewer"));
    }
  }

  function hideAllBut(few) {
    for (const series of spec.series) if (!few.includes(series.name)) hidden.add(series.name);
  }

  function toggle(which) {
    hidden.has(which) ? hidden.delete(which) : hidden.add(which);
    apply();
  }

  function apply() {
    for (const button of legend.querySelectorAll("[data-series]")) {
      button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.series)));
    }
    const all = legend.querySelector(".all");
    if (all) all.textContent = hidden.size ? "Show all" : "Show fewer";
    if (spec.stacked) { build(); return; }
    u.batch(() => u.series.forEach((line, i) => { if (i && line.show === hidden.has(line.of)) u.setSeries(i, { show: !line.show }); }));
    if (at !== null) point(at);
  }

  // Stacked, a line stands on those before it; what is hidden leaves no gap.
  function stack() {
    const below = spec.x.map(() => 0);
    return spec.series.map(series => series.values.map((value, i) => known(value) && !hidden.has(series.name) ? below[i] += value : known(value) ? below[i] : null));
  }

  function data() {
    if (spec.stacked) return [spec.x, ...stack()];
    return [spec.x, ...spec.series.flatMap(series => series.low ? [series.values, series.high, series.low] : [series.values])];
  }

  function options() {
    const series = [{}], bands = [];
    for (const one of spec.series) {
      const { style } = one;
      const line = {
        of: one.name, label: one.label, show: Boolean(spec.stacked) || !hidden.has(one.name), stroke: () => colour(style.hue), width: style.width,
        dash: style.dash, spanGaps: Boolean(one.low),
        points: { show: Boolean(one.points) || spec.x.length <= 40, size: one.points?.size ?? 5, width: 1.6, fill: () => colour(one.points?.open ? "paper" : style.hue) },
      };
      if (spec.stacked) {
        const above = series.length;
        line.points = { show: false };
        line.stroke = () => hidden.has(one.name) ? "transparent" : colour(style.hue);
        line.width = 0.8;
        line.dash = [];
        if (above === 1) line.fill = () => faint(style.hue, 55);
        else bands.push({ series: [above, above - 1], fill: () => faint(style.hue, 55) });
      }
      if (spec.bars) {
        line.paths = uPlot.paths.bars({ size: [1, Infinity], align: spec.bars === "edges" ? 1 : 0 });
        line.fill = () => faint(style.hue, 38);
        line.points = { show: false };
        line.width = 1;
        line.dash = [];
      }
      series.push(line);
      if (one.low) {
        const edge = { of: one.name, show: line.show, stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
        series.push({ ...edge }, { ...edge });
        bands.push({ series: [series.length - 2, series.length - 1], fill: () => faint(style.hue, 16) });
      }
    }
    const text = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
    const axis = { stroke: () => colour("muted"), font: text, grid: { stroke: () => colour("grid"), width: 1 }, ticks: { show: false }, gap: 8 };
    const named = which => spec.names ? { label: spec.names[which], labelFont: text, labelSize: 18, labelGap: 0 } : {};
    const direct = directly() ? 16 + Math.max(0, ...spec.series.map(one => textWidth(one.label))) : spec.right ?? 16;
    return {
      ...size(), legend: { show: false }, series, bands, padding: [12, direct, 0, 0],
      tzDate: stamp => uPlot.tzDate(new Date(stamp * 1000), zone === "UTC" ? "Etc/UTC" : zone),
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7, width: 1.5 }, focus: { prox: -1 } },
      scales: { x: { time: spec.kind === "time", range: xRange }, y: { distr: spec.log ? 3 : 1, range: (_, low, high) => yRange(low, high) } },
      axes: [
        { ...axis, ...named(0), grid: { show: Boolean(spec.square), stroke: () => colour("grid"), width: 1 }, space: spec.kind === "time" ? 80 : 60, size: 34,
          values: (_, splits, __, ___, step) => spec.kind === "time" ? timeTicks(splits, step) : splits.map(spec.xTicks ?? (v => compact.format(v))) },
        { ...axis, ...named(1), ...spec.log ? { grid: { ...axis.grid, filter: (_, splits) => splits.map(v => spec.yTicks(v) ? v : null) } } : {}, size: (_, values) => spec.margin ?? 16 + Math.max(20, ...(values ?? []).map(textWidth)), space: spec.square ? 60 : (_, __, ___, ____, room) => Math.min(36, room / 5),
          values: (_, splits) => spec.yTicks ? splits.map(spec.yTicks) : tickLabels(splits) },
      ],
      hooks: { setCursor: [follow], drawAxes: [self => { spec.behind?.(self); rules(self); whiskers(self); }], draw: [ends] },
    };
  }

  function tickLabels(splits) {
    const step = splits.length > 1 ? Math.abs(splits[1] - splits[0]) : Math.abs(splits[0]) / 10 || 1;
    const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
    const large = splits.some(v => Math.abs(v) >= 1e5);
    return splits.map(v => large ? compact.format(v) : number(v, digits));
  }

  function xRange(_, low, high) {
    if (spec.xRange) return spec.xRange;
    if (!known(low) || !known(high)) return [0, 1];
    const around = spec.kind === "time" ? 86400 : 1;
    return span() === 0 ? [spec.x[0] - around, spec.x[0] + around] : [low, high];
  }

  function yRange(low, high) {
    if (!known(low) || !known(high)) return [spec.log ? 0.1 : 0, 1];
    if (spec.range) return spec.range(low, high);
    for (const rule of spec.rules ?? []) if (rule.always) { low = Math.min(low, rule.at); high = Math.max(high, rule.at); }
    const room = 0.06 * (high - low || Math.abs(high) || 1);
    return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
  }

  function size() {
    const width = Math.max(200, Math.floor(plot.clientWidth));
    return { width, height: spec.square ? Math.min(width, 470) : spec.height ?? (width < 500 ? 240 : 300) };
  }

  const directly = () => spec.direct !== false && plot.clientWidth > 560;

  // Lines at heights that mean something, named where they are.
  function rules(self) {
    const { ctx, bbox } = self, scale = uPlot.pxRatio;
    ctx.save();
    for (const { at: value, label } of spec.rules ?? []) {
      const y = Math.round(self.valToPos(value, "y", true));
      if (y < bbox.top || y > bbox.top + bbox.height) continue;
      ctx.strokeStyle = colour("muted");
      ctx.lineWidth = scale;
      ctx.setLineDash(label ? [2 * scale, 3 * scale] : []);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      // Where the scale is so large that two lines meet, a name would lie on the other's line.
      const crowded = spec.rules.some(other => other.at !== value && Math.abs(self.valToPos(other.at, "y", true) - y) < 18 * scale);
      if (!label || crowded) continue;
      ctx.fillStyle = colour("muted");
      ctx.font = `${11 * scale}px system-ui, sans-serif`;
      ctx.textAlign = "left";
      ctx.fillText(label, bbox.left + 6 * scale, y - 5 * scale);
    }
    ctx.restore();
  }

  // An interval at each point too: a band needs two points to be seen.
  function whiskers(self) {
    const { ctx } = self;
    ctx.save();
    ctx.lineWidth = uPlot.pxRatio;
    for (const one of shown()) {
      if (!one.low || spec.bandOnly) continue;
      ctx.strokeStyle = faint(one.style.hue, 60);
      ctx.beginPath();
      spec.x.forEach((x, i) => {
        if (!known(one.low[i]) || !known(one.high[i])) return;
        const at = self.valToPos(x, "x", true);
        ctx.moveTo(at, self.valToPos(one.low[i], "y", true));
        ctx.lineTo(at, self.valToPos(one.high[i], "y", true));
      });
      ctx.stroke();
    }
    ctx.restore();
  }

  // Names at the ends of the lines, pushed apart until each can be read.
  function ends(self) {
    if (!directly()) return;
    const { ctx, bbox } = self, scale = uPlot.pxRatio, apart = 14 * scale;
    const names = [];
    let below = 0;
    for (const one of shown()) {
      const last = one.values.findLastIndex(known);
      if (last < 0) continue;
      const value = one.values[last];
      names.push({ one, y: self.valToPos(spec.stacked ? below + value / 2 : value, "y", true) });
      below += value;
    }
    names.sort((a, b) => a.y - b.y);
    for (let i = 1; i < names.length; i++) names[i].y = Math.max(names[i].y, names[i - 1].y + apart);
    for (let i = names.length - 1, floor = bbox.top + bbox.height; i >= 0; i--, floor -= apart) names[i].y = Math.min(names[i].y, floor);
    ctx.save();
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    for (const { one, y } of names) {
      ctx.font = `${one.style.width > 1.9 ? 600 : 400} ${12 * scale}px system-ui, sans-serif`;
      ctx.fillStyle = colour(one.style.hue);
      ctx.fillText(one.label, bbox.left + bbox.width + 8 * scale, y);
    }
    ctx.restore();
  }

  function follow(self) {
    const { idx, left } = self.cursor;
    if (idx === null || idx === undefined || left < 0) { tip.hidden = true; return; }
    const lines = rows(idx);
    tip.replaceChildren(element("p", {}, spec.title(idx)), element("table", {}, element("tbody", {},
      ...lines.map(({ one, text }) => element("tr", {}, element("td", {}, swatch(one.style)), element("td", {}, one.label), element("td", { class: "number" }, text))))));
    tip.hidden = !lines.length && !spec.x.length;
    const over = self.over.offsetLeft, room = plot.clientWidth;
    const beside = over + left + 16 + tip.offsetWidth < room ? over + left + 16 : over + left - 16 - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(beside, room - tip.offsetWidth))}px`;
    tip.style.top = "10px";
  }

  function rows(i) {
    return shown().filter(one => known(one.values[i])).sort((a, b) => b.values[i] - a.values[i])
      .map(one => ({ one, text: spec.note ? spec.note(one, i) : spec.format(one.values[i]) }));
  }

  function point(i) {
    at = Math.max(0, Math.min(spec.x.length - 1, i));
    u.setCursor({ left: u.valToPos(spec.x[at], "x"), top: 10 });
    live.textContent = `${spec.title(at)}: ${rows(at).map(({ one, text }) => `${one.label} ${text}`).join("; ") || "nothing shown"}`;
  }

  plot.addEventListener("keydown", event => {
    const last = spec.x.length - 1, here = at ?? -1;
    const to = { ArrowRight: here + 1, ArrowLeft: at === null ? last : here - 1, PageDown: here + 10, PageUp: here - 10, Home: 0, End: last }[event.key];
    if (event.key === "Escape") { at = null; u.setCursor({ left: -10, top: -10 }); return; }
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    point(to);
  });
  // uPlot follows a mouse; a finger taps, or slides along.
  for (const event of ["pointerdown", "pointermove"]) {
    plot.addEventListener(event, ({ pointerType, clientX }) => {
      if (pointerType === "touch" && spec.x.length) point(u.posToIdx(clientX - u.over.getBoundingClientRect().left));
    });
  }
  plot.addEventListener("blur", () => { at = null; u.setCursor({ left: -10, top: -10 }); });

  function fillTable() {
    const head = element("tr", {}, element("th", { scope: "col" }, "Point"), ...spec.series.map(one => element("th", { scope: "col" }, one.label)));
    const body = spec.x.map((_, i) => element("tr", {}, element("th", { scope: "row" }, spec.title(i)),
      ...spec.series.map(one => element("td", { class: "number" }, known(one.values[i]) ? (spec.note ? spec.note(one, i) : spec.format(one.values[i])) : NOTHING))));
    const filled = element("table", { class: "plain" }, element("thead", {}, head), element("tbody", {}, ...body));
    const frame = table.querySelector(".scroller");
    if (frame) frame.replaceChildren(filled);
    else table.append(element("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": `${spec.label}, as a table` }, filled));
  }

  table.addEventListener("toggle", () => {
    table.querySelector(".scroller")?.remove();
    if (table.open) fillTable();
  });

  const api = {
    name,
    redraw: () => u.redraw(true, true), // with the labels of the axes: times may be those of another zone
    update: changed => { spec = { ...spec, ...changed }; build(); },
    refresh,
    fit: () => { if (plot.clientWidth && plot.clientWidth !== u.width) build(); },
    span,
  };
  build();
  charts.add(api);
  new ResizeObserver(() => api.fit()).observe(plot);
  return api;
}

const ruler = document.createElement("canvas").getContext("2d");
function textWidth(text) {
  ruler.font = "600 12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  return Math.ceil(ruler.measureText(text).width);
}

// One of a few, as radio buttons: arrow keys and screen readers know them already.
function choice(label, options, chosen, call) {
  const name = `choice-${choice.made = (choice.made ?? 0) + 1}`;
  return element("fieldset", { class: "choice" }, element("legend", {}, label), ...options.map(([value, text]) => element("label", {},
    element("input", { type: "radio", name, value, checked: value === chosen, on: { change: () => call(value) } }), element("span", {}, text))));
}

function select(label, options, chosen, call) {
  return element("label", { class: "select" }, element("span", {}, label),
    element("select", { on: { change: event => call(event.target.value) } },
      ...options.map(([value, text]) => element("option", { value, selected: value === chosen }, text))));
}
