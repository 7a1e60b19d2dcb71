// "Would it have paged?": the detector on a scale of powers of ten, and the gain with its confidence sequence.
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function powerOfTen(value) {
  if (!known(value) || value <= 0) return "";
  const power = Math.log10(value);
  if (Math.abs(power - Math.round(power)) > 1e-9) return "";
  if (Math.round(power) === 0) return "1";
  return `10${power < 0 ? "⁻" : ""}${[...String(Math.abs(Math.round(power)))].map(d => SUPERSCRIPTS[d]).join("")}`;
}

function drawPaging(payload, styles) {
  const host = document.getElementById("detector"), { paging } = payload;
  if (!host) return;
  const names = Object.keys(paging.methods), axis = axisOf(paging.by, paging.methods[names[0]].x);
  if (!axis.x.length) { host.remove(); document.getElementById("gain")?.remove(); return; }
  const span = axis.x[axis.x.length - 1] - axis.x[0];
  const title = i => axis.kind === "time" ? moment(axis.x[i], span) : `event ${count(axis.x[i])}`;
  // A scale of powers has no zero: during the warm-up there is no level.
  const level = name => paging.methods[name].level.map(v => known(v) && v > 0 ? v : null);
  makeChart(host, {
    ...axis, title, label: "Level of the detector over time, as a share of the alarm line", log: true, height: 260,
    series: perMethod(payload, styles, name => paging.methods[name] && level(name)),
    format: v => v >= 1 ? "alarm" : `${v.toPrecision(2)} of the alarm line`, yTicks: powerOfTen,
    range: low => [10 ** Math.floor(Math.log10(low)), 3], rules: [{ at: 1, label: "alarm" }],
  });
  drawGain(payload, styles, axis, title);
}

function drawGain(payload, styles, axis, title) {
  const host = document.getElementById("gain"), { paging } = payload;
  if (!host) return;
  const raw = payload.methods[0].name, able = Object.keys(paging.methods).filter(name => name !== raw);
  const first = able.includes(payload.verdict.method) ? payload.verdict.method : able[0];
  const shape = name => {
    const { gains } = paging.methods[name], [values, low, high] = [0, 1, 2].map(k => gains.map(triple => triple[k]));
    // At first the band is as wide as ignorance; the picture is about what came after.
    const later = Math.floor(gains.length / 20), ends = [...low.slice(later), ...high.slice(later)].filter(known);
    const least = Math.min(0, ...ends), most = Math.max(0, ...ends), room = 0.06 * (most - least || 1), digits = decimals(values, 5);
    return {
      series: [{ name, label: styles[name].label, style: { ...styles[name], dash: [] }, values, low, high }],
      range: () => [least - room, most + room], label: `Gain of ${styles[name].label} over the raw score, in Brier score`,
      format: v => number(v, digits, true), note: (_, i) => `${number(values[i], digits, true)} (${number(low[i], digits, true)} to ${number(high[i], digits, true)})`,
    };
  };
  const controls = element("div", { class: "controls" });
  host.append(controls);
  const chart = makeChart(host, { ...axis, title, height: 220, bandOnly: true, rules: [{ at: 0, always: true }], ...shape(first) });
  if (able.length > 1) controls.append(select("Gain of", able.map(name => [name, styles[name].label]), first, name => chart.update(shape(name))));
  else controls.remove();
}
