// Segments of a stream with groups: what was said of each and how often it happened, as numbers and as a picture.
const SEGMENT = ["Said and happened", "Events", "Said", "Happened", "Evidence"];
const SCALE = { width: 180, height: 18 };

function makeSegments() {
  const rows = element("tbody", { role: "rowgroup" });
  const table = element("table", { id: "segments", class: "streams", role: "table", "aria-label": "Segments" },
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...["Segment", ...SEGMENT].map(name => element("th", { scope: "col", role: "columnheader" }, name)))), rows);

  function fill(segments) {
    const key = JSON.stringify(segments);
    if (rows.dataset.key === key) return;
    rows.dataset.key = key;
    const [low, high] = scaleOf(segments.flatMap(one => [one.mean_score, one.mean_forecast, one.rate]));
    rows.replaceChildren(...segments.map(segment => {
      const cells = [null, count(segment.events), percent(segment.mean_forecast), percent(segment.rate), evidence(segment)];
      const name = `${segment.attribute} = ${[segment.value].flat().map(value => value ?? "missing").join(", ")}`;
      return element("tr", { role: "row" }, element("th", { scope: "row", role: "rowheader" }, element("bdi", {}, name)),
        ...cells.map((text, i) => element("td", { role: "cell", class: "number", "data-label": SEGMENT[i] }, text ?? dumbbell(segment.mean_score, segment.mean_forecast, segment.rate, low, high))));
    }));
  }
  return { table: element("div", { class: "sideways" }, element("div", { class: "scroller" }, table)), fill };
}

function scaleOf(values) {
  const low = Math.min(...values), high = Math.max(...values), room = 0.08 * (high - low || 0.1);
  return [Math.max(0, low - room), Math.min(1, high + room)];
}

// An upright mark is what happened, the full point what was said, the open one the raw score; the line is how far it is off.
function dumbbell(raw, said, happened, low, high) {
  const at = value => (5 + (SCALE.width - 10) * (value - low) / (high - low)).toFixed(1), y = SCALE.height / 2;
  return drawing("svg", { viewBox: `0 0 ${SCALE.width} ${SCALE.height}`, width: SCALE.width, height: SCALE.height, class: "dumbbell", role: "img",
    "aria-label": `raw score ${percent(raw)}, said ${percent(said)}, happened ${percent(happened)}` },
    drawing("line", { class: "ground", x1: 0, x2: SCALE.width, y1: y, y2: y }), drawing("line", { class: "gap", x1: at(said), x2: at(happened), y1: y, y2: y }),
    drawing("circle", { class: "raw", cx: at(raw), cy: y, r: 3.6 }), drawing("circle", { class: "said", cx: at(said), cy: y, r: 4.2 }),
    drawing("line", { class: "happened", x1: at(happened), x2: at(happened), y1: 2, y2: SCALE.height - 2 }));
}

function evidence({ log_e, flagged }) { // an e-value of 20 is as good as "1 in 20"
  const odds = log_e <= 0 ? "none" : log_e > 16 ? "1 in more than 10,000,000" : `1 in ${count(Math.round(Math.exp(log_e)))}`;
  return flagged ? `${odds} ✱` : odds;
}
