// Numbers, times and elements. Text goes in by textContent alone: a key named "<script>" stays a name.
const NOTHING = "–";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

function drawing(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const known = value => typeof value === "number" && Number.isFinite(value);

function decimals(values, atLeast = 4) {
  let largest = 0;
  for (const value of values) if (known(value)) largest = Math.max(largest, Math.abs(value));
  return largest === 0 ? atLeast : Math.min(9, Math.max(atLeast, 2 - Math.floor(Math.log10(largest))));
}

function number(value, digits = 4, sign = false) {
  if (!known(value)) return NOTHING;
  const size = Math.abs(value);
  const lost = size >= 1e7 || (size > 0 && size < 0.5 * 10 ** -digits);
  const text = lost ? value.toExponential(1) :
    value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return (sign && value > 0 ? "+" : "") + text.replace(/^-/, "−");
}

const count = value => known(value) ? Math.round(value).toLocaleString("en") : NOTHING;

const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

const percent = value => !known(value) ? NOTHING :
  (value === 0 || Math.abs(value) >= 0.001 ? (100 * value).toFixed(1) : (100 * value).toPrecision(2)) + "\u00a0%";

function duration(seconds) {
  if (!known(seconds)) return NOTHING;
  for (const [size, unit] of [[365.25 * 86400, "years"], [86400, "days"], [3600, "h"], [60, "min"]]) {
    const rounded = +(seconds / size).toPrecision(3);
    if (Math.abs(seconds) >= size) return `${rounded} ${rounded === 1 ? unit.replace(/s$/, "") : unit}`;
  }
  const [size, unit] = seconds === 0 || Math.abs(seconds) >= 0.1 ? [1, "s"] : Math.abs(seconds) >= 1e-4 ? [1e-3, "ms"] : [1e-6, "µs"];
  return `${+(seconds / size).toPrecision(3)} ${unit}`;
}

// How probable e^x is beside 1, for a reader who does not think in logarithms.
function odds(log) {
  if (!known(log)) return NOTHING;
  const size = Math.abs(log) / Math.LN10;
  const times = size < 4 ? number(10 ** size, size < 1 ? 1 : 0) : `10^${Math.round(size).toLocaleString("en")}`;
  return log >= 0 ? `${times} to 1 against the raw score` : `${times} to 1 for the raw score`;
}

// Times without a zone are read as they stand; nothing depends on where the reader sits.
function seconds(text) {
  const zoned = /(?:Z|[+-]\d\d:?\d\d)$/.test(text) || !/T|\d\d:\d\d/.test(text);
  return Date.parse(zoned ? text : text.replace(" ", "T") + "Z") / 1000;
}

let zone = "UTC"; // the dashboard lets its reader choose another
const inZone = options => {
  let format = null, of = null;
  return at => {
    if (of !== zone) { of = zone; format = new Intl.DateTimeFormat("en-GB", { timeZone: zone, ...options }); }
    return format.format(new Date(at * 1000)).replace("Sept", "Sep");
  };
};
const asYear = inZone({ year: "numeric" });
const asMonth = inZone({ month: "short" });
const asDay = inZone({ day: "numeric", month: "short" });
const asDate = inZone({ day: "numeric", month: "short", year: "numeric" });
const asClock = inZone({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const asMinute = inZone({ hour: "2-digit", minute: "2-digit" });

function moment(at, span) {
  if (span > 3 * 86400) return asDate(at);
  return `${asDate(at)}, ${span > 3600 ? asMinute(at) : asClock(at)}`;
}

function timeTicks(splits, step) {
  let before = null;
  return splits.map(at => {
    const year = asYear(at), day = asDay(at);
    let label;
    if (step >= 360 * 86400) label = year;
    else if (step >= 27 * 86400) label = before === null || year !== before.year ? `${asMonth(at)} ${year}` : asMonth(at);
    else if (step >= 86400) label = before === null || year !== before.year ? `${day} ${year}` : day;
    else {
      const clock = step >= 60 ? asMinute(at) : asClock(at);
      label = before === null || day !== before.day ? `${day} ${clock}` : clock;
    }
    before = { year, day };
    return label;
  });
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
