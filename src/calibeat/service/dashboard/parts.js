// Small parts of both screens: ages, pairs of numbers, alarms in words, places that are filled again and again.
const byId = id => document.getElementById(id);

// Writes only what has changed, so that a selection, the focus and a screen reader's place survive.
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// The server's clock: the reader's own may be wrong.
let skew = 0;
const now = () => Date.now() / 1000 + skew;

// Coarse on purpose: an age that changes its digits with every look is hard to read.
function age(seconds) {
  if (!known(seconds)) return NOTHING;
  if (seconds < 60) return "under 1 min";
  for (const [size, unit] of [[86400, "day"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) {
      const n = Math.floor(seconds / size);
      return `${count(n)} ${unit}${unit === "day" && n > 1 ? "s" : ""}`;
    }
  }
  return NOTHING;
}

const ago = at => !known(at) ? NOTHING : at > now() + 60 ? `in ${age(at - now())}` : `${age(now() - at)} ago`;

// Powers of two seconds are no round hours: two digits say enough.
const roughly = seconds => duration(+(seconds >= 86400 ? +(seconds / 86400).toPrecision(2) * 86400 : seconds >= 3600 ? +(seconds / 3600).toPrecision(2) * 3600 : seconds >= 60 ? +(seconds / 60).toPrecision(2) * 60 : seconds));

const stamp = at => `${asDate(at)}, ${asMinute(at)}${zone === "UTC" ? " UTC" : ""}`;

// The name of a stream is anybody's text: it goes in as text, in its own direction of writing.
const nameOf = name => element("bdi", {}, name);

const streamLink = name => element("a", { href: `#/stream/${encodeURIComponent(name)}` }, nameOf(name));

function pair(raw, calibrated, digits = 3) {
  return known(raw) || known(calibrated) ? `${number(raw, digits)} → ${number(calibrated, digits)}` : NOTHING;
}

// A list of named numbers, large: made once, its numbers written again.
function makeFigures(names) {
  const values = names.map(() => element("dd", {})), notes = names.map(() => element("dd", { class: "note" }));
  const list = element("dl", { class: "figures" }, ...names.map((name, i) => element("div", {}, values[i], element("dt", {}, name), notes[i])));
  return { list, write: numbers => numbers.forEach(([value, note = ""], i) => { write(values[i], value); write(notes[i], note); }) };
}

// What was asked for in JSON; an Error with the service's own sentence if it was refused.
async function post(path, body, method = "POST") {
  const answer = await fetch(path, { method, headers: { "content-type": "application/json" }, ...body ? { body: JSON.stringify(body) } : {} });
  if (answer.ok) return answer.json();
  const refused = await answer.json().catch(() => null);
  throw new Error(refused?.error?.message ?? `the service answered with status ${answer.status}`);
}

const howToRead = sentence => element("p", { class: "read" }, element("b", {}, "How to read it. "), sentence);

function announce(text) {
  write(byId("announce"), text);
}
