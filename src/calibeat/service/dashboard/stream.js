// The screen of one stream.
const SPANS = [["day", "24 hours"], ["week", "7 days"], ["month", "30 days"], ["all", "All"]];
const MIXED = { a: "slope", b: "offset", c: "bend", mean_lag: "outcomes learnt between a forecast and its own", temper: "1: weights are not tempered for late outcomes" };
const BETA = { a: "weight of log(score)", b: "weight of log(1 − score)", c: "offset" };
const PLATT = { a: "slope of the score's logit", b: "offset" };

function makeStream(choose) {
  const host = byId("stream");
  let data = null, name = null, span = "month";

  const title = element("h1", { id: "stream-name", tabindex: -1 });
  const lead = element("p", { class: "lead" });
  const figures = makeFigures(["calibration error, raw → calibrated", "log-loss, raw → calibrated", "pending", "half of the outcomes come within"]);
  const alarms = element("ul", { class: "alarms" }), quiet = element("p", { class: "small" });
  const spans = choice("Show", SPANS, span, to => choose(name, to));
  const place = id => element("figure", { id, class: "chart" });
  const places = Object.fromEntries(["overtime", "curves", "losses", "map", "arrivals", "delays"].map(id => [id, place(id)]));
  const params = element("dl", { class: "facts" }), lanes = element("ul", { class: "lanes" }), lanesPart = element("div", {}, element("h3", {}, "Weights of the lanes"), lanes);
  const mapPart = element("div", {}, howToRead("A score on the x-axis becomes the probability above it. The grey line is a score that is left as it is."), places.map);
  const SEGMENT = ["Events", "Said", "Happened", "Evidence"];
  const segmentRows = element("tbody", { role: "rowgroup" });
  const segmentsTable = element("table", { id: "segments", class: "streams", role: "table", "aria-label": "Segments" },
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...["Segment", ...SEGMENT].map(name => element("th", { scope: "col", role: "columnheader" }, name)))), segmentRows);
  const pendingWords = element("p", {}), delaysPart = element("div", {}, element("h3", {}, "How late outcomes came"), places.delays);
  const part = (id, heading, ...children) => element("section", { class: "inner", id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, heading), ...children);

  const learnt = [
    part("time-part", "Forecast against outcome", element("div", { class: "controls" }, spans),
      howToRead("The band is how often it happened, with its 95 % interval. The calibrated line should stay inside it. The raw score is what the model said."), places.overtime),
    part("reliability-part", "Reliability",
      howToRead("Each point is a tenth of the forecasts: what was forecast, and how often it happened. On the diagonal both agree. Whiskers are 95 % intervals."), places.curves),
    part("raw-part", "Raw against calibrated", howToRead("Log-loss, lower is better. The calibrated line should lie below the raw one."), places.losses),
    part("segments-part", "Segments",
      howToRead("Events that share a value of a group: what was said of them and how often it happened. Those with the strongest evidence of a difference come first; a mark says that luck does not explain it."),
      element("div", { class: "sideways" }, element("div", { class: "scroller" }, segmentsTable))),
    part("learnt-part", "What was learnt", mapPart, element("h3", {}, "Parameters"), params, lanesPart),
  ];
  const waiting = element("p", { class: "small" }, "No outcome has been learnt yet. Pictures of forecasts and outcomes appear with the first one.");
  host.append(
    element("p", { class: "small back" }, element("a", { href: "#/", id: "back" }, "← All streams")), title, lead, figures.list,
    part("alarms-part", "Alarms", alarms, quiet), waiting, ...learnt,
    part("pending-part", "Pending and delays", pendingWords,
      howToRead("Grey bars are forecasts by the time they were made. The blue part has an outcome that was learnt; the rest is pending or was given up."), places.arrivals, delaysPart),
  );

  const pictures = [
    { of: drawOverTime(places.overtime), when: judged },
    { of: drawCurves(places.curves), when: judged },
    { of: drawLosses(places.losses), when: judged },
    { of: drawMap(places.map), when: view => view.stream.outcomes && view.map },
    { of: drawArrivals(places.arrivals), when: view => view.series.start.length },
    { of: drawDelayBins(places.delays), when: view => view.delays.length },
  ];

  function words() {
    const { stream, alarms: raised, method, monitored } = data, oldest = now() - stream.oldest_pending;
    write(lead, `${counted(stream.events, "forecast")}, ${count(stream.outcomes)} with an outcome. ${lately(stream.last_event)} Method: ${method.toUpperCase()}.${shapeOf(stream)}`);
    const late = medianDelay(data.delays);
    figures.write([
      [pair(stream.raw_error, stream.error), ""], [pair(stream.raw_log_loss, stream.log_loss), ""],
      [count(stream.pending), stream.pending ? `oldest ${age(oldest)}` : ""], [late === null ? NOTHING : roughly(late), ""],
    ]);
    fillAlarms(alarms, raised, false);
    quiet.hidden = raised.length > 0;
    write(quiet, monitored ? "No alarm so far. The monitor watches this stream." : "Nobody watches this stream: calibeat serve --monitor does.");
    const more = [stream.held ? `${counted(stream.held, "outcome")} wait until they are old enough to be learnt` : "", stream.expired ? `${counted(stream.expired, "forecast")} ${stream.expired === 1 ? "was" : "were"} given up without an outcome` : ""].filter(Boolean);
    write(pendingWords, [stream.pending ? `${counted(stream.pending, "forecast")} ${stream.pending === 1 ? "waits" : "wait"} for an outcome, the oldest for ${age(oldest)}.` : "No forecast waits for an outcome.", ...more.map(text => `${text}.`)].join(" "));
  }

  function facts() {
    const key = JSON.stringify([data.params, data.lanes]), notes = data.method === "multi" ? {} : "mean_lag" in data.params ? MIXED : "c" in data.params ? BETA : PLATT;
    if (params.dataset.key === key) return;
    params.dataset.key = key;
    params.replaceChildren(...Object.entries(data.params).map(([param, value]) => element("div", {},
      element("dt", {}, param.replaceAll("_", " ")), element("dd", {}, element("span", { class: "value" }, number(value, 3)), element("span", { class: "note" }, notes[param] ?? "")))));
    const weights = Object.entries(data.lanes).sort((a, b) => b[1] - a[1]);
    lanesPart.hidden = !weights.length;
    lanes.replaceChildren(...weights.map(([lane, weight]) => element("li", {}, element("span", {}, lane), laneBar(weight), element("span", { class: "number" }, percent(weight)))));
  }

  function segments() {
    const key = JSON.stringify(data.segments);
    byId("segments-part").hidden = !data.segments.length;
    if (segmentRows.dataset.key === key) return;
    segmentRows.dataset.key = key;
    segmentRows.replaceChildren(...data.segments.map(segment => {
      const cells = [count(segment.events), percent(segment.mean_forecast), percent(segment.rate), evidence(segment)];
      return element("tr", { role: "row" }, element("th", { scope: "row", role: "rowheader" }, element("bdi", {}, `${segment.attribute} = ${[segment.value].flat().map(value => value ?? "missing").join(", ")}`)),
        ...cells.map((text, i) => element("td", { role: "cell", class: "number", "data-label": SEGMENT[i] }, text)));
    }));
  }

  function draw(how) {
    document.title = `${name} – calibeat`;
    words();
    facts();
    const some = data.stream.outcomes > 0;
    waiting.hidden = some;
    for (const section of learnt) section.hidden = !some;
    if (some) segments();
    mapPart.hidden = !data.map;
    delaysPart.hidden = !data.delays.length;
    for (const { of, when } of pictures) if (when(data)) of[how](data);
  }

  return {
    take: (wanted, query) => {
      const asked = new URLSearchParams(query).get("span");
      span = SPANS.some(([key]) => key === asked) ? asked : "month";
      for (const input of spans.querySelectorAll("input")) input.checked = input.value === span;
      if (name !== wanted) data = null;
      name = wanted;
      return `v1/view?${new URLSearchParams({ stream: name, span })}`;
    },
    show: answer => {
      const other = data === null || data.stream.name !== answer.stream.name, how = other || data.span !== answer.span ? "draw" : "refresh";
      data = answer;
      if (other) title.replaceChildren(nameOf(answer.stream.name));
      draw(how);
      if (other) { scrollTo(0, 0); title.focus({ preventScroll: true }); }
    },
    same: () => { if (data) words(); },
    about: () => data,
  };
}

function judged(view) { // outcomes that came before the state was imported have no times and no tenths
  return view.stream.outcomes && view.stream.error !== null;
}

function lately(at) {
  return known(at) ? `The last one was made ${ago(at)}.` : "They were made before the state was imported.";
}

// What a stream has beside one score.
function shapeOf({ classes, groups }) {
  if (classes !== null) return ` ${Array.isArray(classes) ? `Classes: ${classes.slice(0, 10).join(", ")}${classes.length > 10 ? ", …" : ""}.` : `${count(classes)} classes.`} Pictures are about the class with the largest probability.`;
  return groups === null ? "" : ` Groups: ${groups.attributes.join(", ")}.`;
}

function evidence({ log_e, flagged }) { // an e-value of 20 is as good as "1 in 20"
  const odds = log_e <= 0 ? "none" : log_e > 16 ? "1 in more than 10,000,000" : `1 in ${count(Math.round(Math.exp(log_e)))}`;
  return flagged ? `${odds} ✱` : odds;
}

function laneBar(weight) {
  return drawing("svg", { viewBox: "0 0 120 10", width: 120, height: 10, "aria-hidden": "true", class: "errors" },
    drawing("rect", { x: 0, y: 1, width: (120 * weight).toFixed(1), height: 8, class: "calibrated" }));
}
