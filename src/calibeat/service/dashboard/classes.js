// Many classes: a small reliability diagram for each, and the same as a table. Over the latest outcomes.
const CLASS = ["Said and happened", "Came", "Raw score", "Said", "Happened", "Error, raw → calibrated"];
const PANEL = 104, MOST_PANELS = 12;

function makeClasses() {
  const rows = element("tbody", { role: "rowgroup" }), panels = element("div", { class: "panels" }), words = element("p", { class: "small" });
  const table = element("table", { id: "classes", class: "streams", role: "table", "aria-label": "Classes" },
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...["Class", ...CLASS].map(name => element("th", { scope: "col", role: "columnheader" }, name)))), rows);

  function fill(classes, of) {
    const key = JSON.stringify(classes);
    if (rows.dataset.key === key) return;
    rows.dataset.key = key;
    const [low, high] = scaleOf(classes.flatMap(one => [one.mean_score, one.mean_forecast, one.rate]));
    write(words, `The latest ${counted(classes[0]?.events ?? 0, "outcome")}${of > classes.length ? `; the ${classes.length} commonest of ${count(of)} classes` : ""}.`);
    panels.replaceChildren(...classes.slice(0, MOST_PANELS).map(classPanel));
    rows.replaceChildren(...classes.map(one => {
      const cells = [null, count(one.labels), percent(one.mean_score), percent(one.mean_forecast), percent(one.rate), pair(one.raw_error, one.error)];
      return element("tr", { role: "row" }, element("th", { scope: "row", role: "rowheader" }, element("bdi", {}, String(one.label))),
        ...cells.map((text, i) => element("td", { role: "cell", class: "number", "data-label": CLASS[i] }, text ?? dumbbell(one.mean_score, one.mean_forecast, one.rate, low, high))));
    }));
  }
  return { parts: [words, panels, element("div", { class: "sideways" }, element("div", { class: "scroller" }, table))], fill };
}

// Tenths of what was said of a class against how often it came. A larger point has more events.
function classPanel(one) {
  const at = v => (6 + (PANEL - 12) * v).toFixed(1), up = v => (PANEL - 6 - (PANEL - 12) * v).toFixed(1), most = Math.max(...one.count);
  const points = one.count.flatMap((n, i) => n ? [drawing("circle", { cx: at(one.forecast[i]), cy: up(one.outcome[i]), r: (1.4 + 3.4 * Math.sqrt(n / most)).toFixed(1) })] : []);
  const picture = drawing("svg", { viewBox: `0 0 ${PANEL} ${PANEL}`, width: PANEL, height: PANEL, class: "panel", role: "img",
    "aria-label": `Reliability of ${one.label}: calibration error ${number(one.error, 3)}` },
    drawing("rect", { x: 6, y: 6, width: PANEL - 12, height: PANEL - 12 }), drawing("line", { x1: at(0), y1: up(0), x2: at(1), y2: up(1) }), ...points);
  return element("figure", { class: "class" }, picture, element("figcaption", {}, element("bdi", {}, String(one.label)), element("span", {}, number(one.error, 3))));
}
