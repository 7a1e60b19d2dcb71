// Who is drawn how. The colours are those of Okabe and Ito, which hold for every kind of colour blindness; a dash of its
// own and a name at the end of the line say the same again without colour.
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2], [12, 4], [2, 2, 6, 2], [1, 3]];
const HUES = ["vermilion", "green", "purple", "orange", "sky", "brown", "ink"];

const root = document.documentElement;
let colours = null;

function colour(name) {
  colours ??= getComputedStyle(root);
  return colours.getPropertyValue(`--${name}`).trim();
}

function styleOf(index, chosen) {
  if (chosen) return { hue: "blue", dash: [], width: 2.4 };
  return { hue: HUES[index % HUES.length], dash: DASHES[1 + (index + Math.floor(index / HUES.length)) % (DASHES.length - 1)], width: 1.5 };
}

function methodStyles(payload) {
  const styles = {};
  let index = 0;
  for (const [place, { name, label }] of payload.methods.entries()) {
    if (place === 0) styles[name] = { label, hue: "grey", dash: [], width: 2 };
    else styles[name] = { label, ...(name === payload.verdict.method ? styleOf(0, true) : styleOf(index++, false)) };
  }
  return styles;
}

// Colours are #rrggbb in the style sheet, so that two more digits make them transparent on any canvas.
const faint = (name, share) => colour(name) + Math.round(2.55 * share).toString(16).padStart(2, "0");

function swatch({ hue, dash, width, area }) {
  const line = area ? drawing("rect", { x: 8, y: 0, width: 12, height: 10, rx: 2 }) : drawing("line", { x1: 1, x2: 27, y1: 5, y2: 5, "stroke-width": width, "stroke-dasharray": dash.join(" ") || null });
  const picture = drawing("svg", { viewBox: "0 0 28 10", width: 28, height: 10, "aria-hidden": "true", class: "swatch" }, line);
  picture.style.setProperty("--stroke", `var(--${hue})`);
  return picture;
}
