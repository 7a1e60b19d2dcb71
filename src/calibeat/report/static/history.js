// What happened to the data: small pictures along the log.
function drawHistory(payload) {
  const { history } = payload;
  const axis = axisOf(history.by, history.start), span = axis.x[axis.x.length - 1] - axis.x[0];
  const title = i => axis.kind === "time" ? moment(axis.x[i], span) : `from event ${count(axis.x[i])} on`;
  const share = v => `${+(100 * v).toPrecision(3)}\u00a0%`;
  const [ones, zeros] = payload.classes ? ["right", "wrong"] : ["ones", "zeros"];
  const small = (id, more) => {
    const host = document.getElementById(id);
    if (host) makeChart(host, { ...axis, title, height: 150, direct: false, ...more });
  };
  const line = (name, hue, values, more = {}) => ({ name, label: name, style: { hue, dash: [], width: 1.6 }, values, ...more });
  small("volume", { label: `Events per ${history.unit}`, format: v => counted(v, "event"), series: [line("events", "blue", history.count)], range: (_, high) => [0, high * 1.06 || 1] });
  small("missing", { label: "Share of events without an outcome", format: percent, yTicks: share, series: [line("no outcome", "vermilion", history.missing)], range: (_, high) => [0, high * 1.06 || 1] });
  // In the unit of the largest, so that ticks are round.
  const both = [...(history.ones_delay ?? []), ...(history.zeros_delay ?? [])].filter(known);
  const { size, unit } = history.delay_is_time ? roundTime(Math.max(0, ...both)) : { size: 1, unit: "" };
  const scaled = values => (values ?? []).map(v => known(v) ? v / size : null);
  small("delays", {
    label: `Median delay of ${ones} and of ${zeros}`, format: history.delay_is_time ? v => duration(v * size) : v => counted(v, "forecast"),
    yTicks: v => `${+v.toPrecision(3)}${unit}`, range: (_, high) => [0, high * 1.06 || 1],
    series: [line(ones, "blue", scaled(history.ones_delay)), line(zeros, "orange", scaled(history.zeros_delay), { style: { hue: "orange", dash: [5, 3], width: 1.6 } })],
  });
  small("scores", {
    label: `${payload.classes ? "Confidence of the raw scores" : "Raw scores"}: median, 10th and 90th percentile`, format: v => number(v, 3), bandOnly: true,
    note: (_, i) => `${number(history.score_median[i], 3)} (${number(history.score_low[i], 3)} to ${number(history.score_high[i], 3)})`,
    series: [line(payload.classes ? "confidence" : "score", "grey", history.score_median, { low: history.score_low, high: history.score_high })],
  });
}

// The unit in which the ticks of a time are short.
function roundTime(most) {
  for (const [size, unit] of [[86400, "\u00a0d"], [3600, "\u00a0h"], [60, "\u00a0min"]]) if (most >= 2 * size) return { size, unit };
  return { size: 1, unit: "\u00a0s" };
}
