// The screen of one stream.
const SPANS = [["day", "24 hours"], ["week", "7 days"], ["month", "30 days"], ["all", "All"]];
const MIXED = { a: "slope", b: "offset", c: "bend", mean_lag: "outcomes learnt between a forecast and its own", temper: "1: weights are not tempered for late outcomes" };
const BETA = { a: "weight of log(score)", b: "weight of log(1 − score)", c: "offset" };
const PLATT = { a: "slope of the score's logit", b: "offset" };

function makeStream(choose, again) {
  const host = byId("stream");
  let data = null, name = null, span = "month";

  const title = element("h1", { id: "stream-name", tabindex: -1 }), badge = makeBadge(), look = makeLook("stream-look");
  const lead = element("p", { class: "lead" });
  const figures = makeFigures(["calibration error, raw → calibrated", "log-loss, raw → calibrated", "pending", "half of the outcomes come within"]);
  const alarms = makeAlarms(again), segments = makeSegments(), classes = makeClasses();
  const spans = choice("Show", SPANS, span, to => choose(name, to));
  const place = id => element("figure", { id, class: "chart" });
  const places = Object.fromEntries(["overtime", "curves", "losses", "map", "arrivals", "delays"].map(id => [id, place(id)]));
  const params = element("dl", { class: "facts" }), lanes = element("ul", { class: "lanes" }), lanesPart = element("div", {}, element("h3", {}, "Weights of the lanes"), element("p", { class: "small" }, "AUTO mixes learners that forget at different speeds. A larger weight is more trust."), lanes);
  const mapPart = element("div", {}, howToRead("A score on the x-axis becomes the probability above it. The grey line is a score that is left as it is."), places.map);
  const pendingWords = element("p", {}), delaysPart = element("div", {}, element("h3", {}, "How late outcomes came"), places.delays);
  const part = (id, heading, ...children) => element("section", { class: "inner", id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, heading), ...children);

  const learnt = [
    part("time-part", "Forecast against outcome",
      howToRead("The band is how often it happened, with its 95 % interval. The calibrated line should stay inside it. The raw score is what the model said."), places.overtime),
    part("raw-part", "Raw against calibrated", howToRead("Log-loss, lower is better. The calibrated line should lie below the raw one."), places.losses),
    part("reliability-part", "Reliability",
      howToRead("Each point is a tenth of the forecasts: what was forecast, and how often it happened. On the diagonal both agree. Whiskers are 95 % intervals."), places.curves),
    part("segments-part", "Segments",
      howToRead("Events that share a value of a group. The upright mark is how often it happened, the full point what was said, the open one the raw score. Those with the strongest evidence of a difference come first; ✱ says that luck does not explain it."), segments.table),
    part("classes-part", "Classes",
      howToRead("Each square is a class: what was said of it, to the right, against how often it came, upwards. On the diagonal both agree. The number is the calibration error."), ...classes.parts),
    part("learnt-part", "What was learnt", mapPart,
      element("details", { id: "parameters" }, element("summary", {}, "Numbers of the method"),
        element("p", { class: "small" }, "For those who know the method: nothing here needs to be watched. The map above is what these numbers make of a score."),
        element("h3", {}, "Parameters"), params, lanesPart)),
  ];
  const spanPart = element("div", { class: "controls", id: "spans" }, spans);
  const waiting = element("p", { class: "small" }, "No outcome has been learnt yet. Pictures of forecasts and outcomes appear with the first one.");
  host.append(
    element("p", { class: "small back" }, element("a", { href: "#/", id: "back" }, "← All streams")), element("div", { class: "headline" }, title, badge), look.host, lead, figures.list,
    part("alarms-part", "Alarms", ...alarms.parts), waiting, spanPart, ...learnt,
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
    const { stream, method } = data, oldest = now() - stream.oldest_pending;
    write(lead, `${counted(stream.events, "forecast")}, ${count(stream.outcomes)} with an outcome. ${lately(stream.last_event)} Method: ${method.toUpperCase()}.${shapeOf(stream)}`);
    const late = medianDelay(data.delays);
    figures.write([
      [pair(stream.raw_error, stream.error), ""], [pair(stream.raw_log_loss, stream.log_loss), ""],
      [count(stream.pending), stream.pending ? `oldest ${age(oldest)}` : ""], [late === null ? NOTHING : roughly(late), ""],
    ]);
    badge.set(stream.state);
    look.host.hidden = !data.first;
    look.fill(data.first, "", false);
    alarms.fill(data);
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

  function draw(how) {
    document.title = `${name} – calibeat`;
    words();
    facts();
    const some = data.stream.outcomes > 0;
    waiting.hidden = some;
    spanPart.hidden = !some;
    for (const section of learnt) section.hidden = !some;
    byId("segments-part").hidden = !data.segments.length;
    segments.fill(data.segments);
    byId("classes-part").hidden = !data.classes.length;
    classes.fill(data.classes, Array.isArray(data.stream.classes) ? data.stream.classes.length : data.stream.classes);
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
function shapeOf({ classes, groups, models, kept }) {
  if (models !== null) return ` Models: ${models.join(", ")}.`;
  if (classes !== null) return ` ${Array.isArray(classes) ? `Classes: ${classes.slice(0, 10).join(", ")}${classes.length > 10 ? ", …" : ""}.` : `${count(classes)} classes.`} Pictures are about the class with the largest probability.`;
  const log = kept === null ? "" : ` The log kept ${+(100 * kept.ones).toFixed(3)} % of the ones and ${+(100 * kept.zeros).toFixed(3)} % of the zeros.`;
  return groups === null ? log : ` Groups: ${groups.attributes.map(each => each.name ?? each).join(", ")}.${log}`;
}

function laneBar(weight) {
  return drawing("svg", { viewBox: "0 0 120 10", width: 120, height: 10, "aria-hidden": "true", class: "errors" },
    drawing("rect", { x: 0, y: 1, width: (120 * weight).toFixed(1), height: 8, class: "calibrated" }));
}
