// Four weeks of a stream in a line: how many forecasts a day, how many of them have an outcome, and the log-loss.
const SPARK = { width: 140, height: 38, line: 20, bars: 14 };
const FEW = 30; // outcomes, below which a mean says little

function makeSpark() {
  const made = drawing("path", { class: "made" }), learnt = drawing("path", { class: "learnt" });
  const path = drawing("path", { class: "loss" }), end = drawing("circle", { class: "end", r: 2 });
  const title = drawing("title");
  const picture = drawing("svg", { viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, width: SPARK.width, height: SPARK.height, class: "spark", role: "img" },
    title, drawing("line", { class: "ground", x1: 0, x2: SPARK.width, y1: SPARK.height - 0.5, y2: SPARK.height - 0.5 }), made, learnt, path, end);
  let drawn = "";
  const set = trend => {
    const key = JSON.stringify(trend);
    if (key === drawn) return;
    drawn = key;
    const days = trend.forecasts.length, step = SPARK.width / days, most = Math.max(1, ...trend.forecasts), floor = SPARK.height - 1;
    const bars = values => values.map((n, i) => n ? `M${(i * step + 0.5).toFixed(1)} ${floor}v${(-Math.max(0.8, SPARK.bars * Math.min(n, most) / most)).toFixed(1)}h${(step - 1).toFixed(1)}V${floor}z` : "").join("");
    made.setAttribute("d", bars(trend.forecasts));
    learnt.setAttribute("d", bars(trend.outcomes));
    const points = smoothed(trend), values = points.map(([, v]) => v), low = Math.min(...values), high = Math.max(...values);
    // A change of a tenth fills half of the height: what is less is flat, as it should look.
    const middle = (low + high) / 2, half = Math.max((high - low) / 2, 0.1 * middle) || 1;
    const at = ([day, v]) => [((day + 0.5) * step).toFixed(1), (SPARK.line / 2 + 1 - (v - middle) / half * (SPARK.line / 2 - 2)).toFixed(1)];
    path.setAttribute("d", points.map((point, i) => `${i && point[0] - points[i - 1][0] < 4 ? "L" : "M"}${at(point).join(" ")}`).join(""));
    end.setAttribute("visibility", points.length ? "visible" : "hidden");
    if (points.length) { const [x, y] = at(points.at(-1)); end.setAttribute("cx", x); end.setAttribute("cy", y); }
    write(title, sparkWords(trend));
  };
  return { picture, set };
}

// Means of three days: those of one day are mostly luck.
function smoothed({ outcomes, log_loss }) {
  const points = [];
  outcomes.forEach((n, day) => {
    if (!n) return;
    let sum = 0, weight = 0;
    for (let i = Math.max(0, day - 1); i <= Math.min(outcomes.length - 1, day + 1); i++) if (outcomes[i]) { sum += outcomes[i] * log_loss[i]; weight += outcomes[i]; }
    points.push([day, sum / weight]);
  });
  return points;
}

// The log-loss of the last week that has outcomes, beside that of the weeks before; null where there are too few.
function lossTrend({ outcomes, log_loss }) {
  const last = outcomes.findLastIndex(n => n > 0), mean = (from, to) => {
    let sum = 0, n = 0;
    for (let i = Math.max(0, from); i < to; i++) if (outcomes[i]) { sum += outcomes[i] * log_loss[i]; n += outcomes[i]; }
    return n >= FEW ? sum / n : null;
  };
  const late = mean(last - 6, last + 1), before = mean(0, last - 6);
  if (!known(late) || !known(before) || !before) return null;
  const change = late / before - 1;
  return { late, before, change, arrow: Math.abs(change) < 0.05 ? "→" : change > 0 ? "↗" : "↘" };
}

// The same in words: the arrow and the number say it without colour.
function trendWords(trend) {
  const found = lossTrend(trend);
  return found === null ? "" : found.arrow === "→" ? "→ steady" : `${found.arrow} ${found.change > 0 ? "+" : "−"}${Math.round(100 * Math.abs(found.change))}\u00a0%`;
}

function sparkWords(trend) {
  const sum = values => values.reduce((a, b) => a + b, 0), found = lossTrend(trend);
  return `Last ${trend.forecasts.length} days: ${counted(sum(trend.forecasts), "forecast")}, ${count(sum(trend.outcomes))} with an outcome.` +
    (found ? ` Log-loss ${number(found.late, 3)} in the last week with outcomes, ${number(found.before, 3)} before.` : "");
}
