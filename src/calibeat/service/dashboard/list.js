// The first screen: what to look at first, the store in numbers, the streams by what matters, the latest alarms.
const RANKS = [["attention", "What matters"], ["events", "Volume"], ["name", "Name"]];
const RANK_WORDS = {
  attention: "Streams that need a person come first, then those whose miscalibration costs most: outcomes × squared calibration error.",
  events: "Streams with most forecasts come first.",
  name: "In the order of their names.",
};
// Names of the columns, and what they are called where each row is a card.
const COLUMNS = ["Stream", "State", "Last 4 weeks", "Log-loss", "Calibration error, raw → calibrated", "Pending", "Forecasts", "Last forecast"];
const COLUMN_RANKS = ["name", "attention", null, null, null, null, "events", null]; // by which a click on its heading ranks
const CARDS = ["State", "Last 4 weeks", "Log-loss", "Error", "Pending", "Forecasts", "Last forecast"];
const ALERTS = Object.keys(STATES).filter(state => STATES[state][0] === "alert");
const WORST = 0.3; // where the bar of an error is full

function makeList(choose) {
  const host = byId("list");
  const state = { order: "attention", search: "", state: null, page: 1 };
  let data = null;

  // ---- made once ----
  const figures = makeFigures(["forecasts", "pending", "calibration error, raw → calibrated", "alarms in 7 days"]);
  const title = element("h1", {}, "Streams");
  const problem = element("p", { class: "problem", id: "list-problem", hidden: true });
  const look = makeLook("look-first"), filters = makeFilters(chosen => go({ state: chosen, page: 1 }));
  const alarms = element("ul", { class: "alarms" });
  const watched = element("section", { class: "inner", "aria-labelledby": "alarms-title" }, element("h2", { id: "alarms-title" }, "Latest alarms"), alarms);
  const search = element("input", { type: "search", id: "search", placeholder: "part of a name", autocomplete: "off", spellcheck: "false", maxlength: 200 });
  const ranks = choice("Rank by", RANKS, state.order, order => go({ order, page: 1 }));
  const words = element("p", { class: "small", id: "rank-words" });
  const body = element("tbody", { role: "rowgroup" });
  const headings = COLUMNS.map((name, i) => element("th", { scope: "col", role: "columnheader" }, COLUMN_RANKS[i] ?
    element("button", { type: "button", class: "sort", on: { click: () => go({ order: COLUMN_RANKS[i], page: 1 }) } }, name) : name));
  const table = element("table", { id: "streams", class: "streams", role: "table", "aria-label": "Streams", "aria-describedby": "rank-words" },
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...headings)), body);
  const status = element("span", { class: "small", role: "status", id: "list-status" });
  const back = element("button", { type: "button", on: { click: () => go({ page: data.page - 1 }) } }, "Previous");
  const on = element("button", { type: "button", on: { click: () => go({ page: data.page + 1 }) } }, "Next");
  const pager = element("div", { class: "controls pager" }, back, status, on);
  const streams = element("section", { class: "inner", "aria-labelledby": "ranked-title" }, element("h2", { id: "ranked-title" }, "All streams"),
    element("div", { class: "controls" }, element("label", { class: "select" }, element("span", {}, "Find"), search), ranks),
    filters.host, words, element("div", { class: "sideways" }, element("div", { class: "scroller" }, table)), pager);
  const reading = howToRead("Bars are forecasts a day; the dark part has an outcome. The line is the log-loss, mean of three days: lower is better. The arrow compares the last week that has outcomes with the weeks before.");
  streams.append(reading);
  const full = element("div", {}, look.host, figures.list, streams, watched);
  const empty = makeEmpty();
  host.append(title, problem, full, empty);

  let typing;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => go({ search: search.value.trim(), page: 1 }), 200);
  });

  function go(change) {
    clearTimeout(typing);
    Object.assign(state, { search: search.value.trim() }, change); // also what was typed just now
    rows.clear();
    say("");
    choose(path());
  }

  // Why this screen is here and not the one that was asked for.
  function say(text) {
    write(problem, text);
    problem.hidden = !text;
  }

  // The address keeps what was chosen, so that it can be shared and found again.
  function path() {
    const asked = new URLSearchParams();
    if (state.order !== "attention") asked.set("order", state.order);
    if (state.search) asked.set("search", state.search);
    if (state.state) asked.set("state", state.state);
    if (state.page > 1) asked.set("page", state.page);
    const text = asked.toString();
    return text ? `#/?${text}` : "#/";
  }

  function take(query) {
    const asked = new URLSearchParams(query), order = asked.get("order");
    state.order = RANKS.some(([name]) => name === order) ? order : "attention";
    state.search = (asked.get("search") ?? "").slice(0, 200);
    state.state = STATES[asked.get("state")] ? asked.get("state") : null;
    state.page = Math.max(1, Math.min(1e6, Math.floor(Number(asked.get("page"))) || 1));
    if (document.activeElement !== search) search.value = state.search;
    for (const input of ranks.querySelectorAll("input")) input.checked = input.value === state.order;
    headings.forEach((heading, i) => {
      if (COLUMN_RANKS[i] === state.order) heading.setAttribute("aria-sort", state.order === "name" ? "ascending" : "descending");
      else heading.removeAttribute("aria-sort");
    });
    const question = new URLSearchParams({ order: state.order, page: state.page });
    if (state.search) question.set("search", state.search);
    if (state.state) question.set("state", state.state);
    return `v1/overview?${question}`;
  }

  // ---- written again with every answer ----
  const rows = new Map();

  function makeRow() {
    const cells = CARDS.map(name => element("td", { role: "cell", class: "number", "data-label": name }));
    const texts = cells.map(() => element("span", {})), notes = cells.map(() => element("span", { class: "note" }));
    const link = element("a", {}), badge = makeBadge(), spark = makeSpark(), bars = errorBars();
    cells.forEach((cell, i) => cell.append(...[[badge], [spark.picture], [], [bars.picture]][i] ?? [], texts[i], notes[i]));
    cells[0].className = "standing";
    cells[1].className = "weeks";
    const row = element("tr", { role: "row" }, element("th", { scope: "row", role: "rowheader" }, link), ...cells);
    return { row, texts, notes, link, badge, spark, bars };
  }

  function fillRow(made, stream) {
    if (made.link.dataset.name !== stream.name) {
      made.link.dataset.name = stream.name;
      made.link.href = `#/stream/${encodeURIComponent(stream.name)}`;
      made.link.title = stream.name;
      made.link.replaceChildren(nameOf(stream.name));
    }
    made.badge.set(stream.state);
    made.spark.set(stream.trend);
    made.bars.set(stream.raw_error, stream.error);
    const since = known(stream.since) ? `for ${age(now() - stream.since)}` : "", seen = stream.acknowledged ? "acknowledged" : "";
    ["", "", number(lossTrend(stream.trend)?.late ?? stream.log_loss, 3), pair(stream.raw_error, stream.error), count(stream.pending), count(stream.events), ago(stream.last_event)]
      .forEach((text, i) => write(made.texts[i], text));
    write(made.notes[0], [since, seen].filter(Boolean).join(", "));
    write(made.notes[2], trendWords(stream.trend));
    write(made.notes[4], stream.pending ? `oldest ${age(now() - stream.oldest_pending)}` : "");
  }

  // While somebody points at the list or walks through it, rows keep their places and only their numbers change.
  function inUse() {
    return rows.size > 0 && body.matches(":hover, :focus-within");
  }

  function fillRows() {
    const found = new Map(data.rows.map(stream => [stream.name, stream]));
    if (inUse() && [...rows.keys()].some(name => found.has(name))) {
      for (const [name, made] of rows) if (found.has(name)) fillRow(made, found.get(name));
      return;
    }
    for (const [name, made] of rows) if (!found.has(name)) { made.row.remove(); rows.delete(name); }
    let before = null;
    for (const stream of data.rows) {
      if (!rows.has(stream.name)) rows.set(stream.name, makeRow());
      const made = rows.get(stream.name);
      fillRow(made, stream);
      const place = before ? before.nextSibling : body.firstChild;
      if (place !== made.row) body.insertBefore(made.row, place);
      before = made.row;
    }
    while (before?.nextSibling) before.nextSibling.remove();
    if (!data.rows.length) body.replaceChildren(element("tr", { role: "row" }, element("td", { role: "cell", colspan: COLUMNS.length }, "No stream matches.")));
  }

  function draw() {
    const alerts = ALERTS.reduce((sum, one) => sum + (data.states[one] ?? 0), 0);
    document.title = alerts ? `(${alerts}) calibeat` : "calibeat";
    const nothing = data.streams === 0;
    empty.hidden = !nothing;
    full.hidden = nothing;
    write(title, nothing ? "No forecasts yet" : `${counted(data.streams, "stream")}`);
    if (nothing) { empty.fill(data.needs_token); return; }
    figures.write([
      [count(data.events), `${count(data.outcomes)} with an outcome`],
      [count(data.pending), data.pending ? `oldest ${age(now() - data.oldest_pending)}` : "every outcome is there"],
      [pair(data.raw_error, data.error), "mean over outcomes"],
      [count(data.fresh_alarms), data.monitored ? "" : "no monitor: calibeat store configure adds one"],
    ]);
    look.fill(data.first, data.first ? `${counted(alerts, "stream")} ${alerts === 1 ? "needs" : "need"} a person. First ` : calmWords(data), true);
    filters.fill(data.states, data.streams, state.state);
    fillAlarms(alarms, data.alarms, true);
    watched.hidden = data.alarms.length === 0;
    write(words, RANK_WORDS[state.order]);
    fillRows();
    const first = (data.page - 1) * 25;
    write(status, data.found ? `${count(first + 1)}–${count(first + data.rows.length)} of ${counted(data.found, "stream")}` : "0 streams");
    back.disabled = data.page <= 1;
    on.disabled = data.page >= data.pages;
    pager.hidden = data.pages < 2 && !state.search && !state.state;
  }

  return {
    take,
    say,
    show: answer => { data = answer; draw(); },
    same: () => { if (data) draw(); },
    about: () => data,
    focusOn: name => rows.get(name)?.link.focus({ preventScroll: true }),
  };
}

// Nothing is wrong, as far as anybody can see; and how far that is.
function calmWords({ states, streams, monitored }) {
  if (!monitored) return "No alarm is open. No monitor reads the outcomes of these streams: calibeat store configure --monitor 1000000 adds one.";
  const learning = states.learning ?? 0;
  return `No stream needs a person. ${learning ? `${counted(learning, "stream")} of ${count(streams)} ${learning === 1 ? "has" : "have"} too few outcomes to be judged.` : ""}`;
}

// Two bars from zero: the raw score's error above, what is left of it below.
function errorBars() {
  const bar = (y, kind) => drawing("rect", { x: 0, y, width: 0, height: 4, class: kind });
  const raw = bar(1, "raw"), calibrated = bar(7, "calibrated");
  const picture = drawing("svg", { viewBox: "0 0 64 12", width: 64, height: 12, "aria-hidden": "true", class: "errors" }, raw, calibrated);
  const length = value => known(value) ? Math.min(64, 64 * value / WORST).toFixed(1) : 0;
  return { picture, set: (before, after) => { raw.setAttribute("width", length(before)); calibrated.setAttribute("width", length(after)); } };
}

// What to do first.
function makeEmpty() {
  const command = element("code", { id: "command" });
  const part = element("div", { hidden: true },
    element("p", { class: "lead" }, "Send a score, get a calibrated probability. Send the outcome when you know it, today or in a month. This page then shows how well both fit."),
    element("div", { class: "command" }, element("pre", {}, command)),
    element("p", { class: "small" }, "The page asks every few seconds: the stream appears here by itself."));
  part.fill = needsToken => {
    const token = needsToken ? " \\\n  -H 'Authorization: Bearer TOKEN'" : "";
    const line = (path, body) => `curl ${location.origin}${location.pathname}${path}${token} \\\n  -d '${body}'`;
    write(command, `${line("v1/forecasts", '{"stream": "paris", "id": "e1", "score": 0.83}')}\n\n${line("v1/outcomes", '{"stream": "paris", "id": "e1", "outcome": 1}')}`);
  };
  return part;
}
