// The state of a stream: a badge, the row of filters, and the one line that says what to look at first.
// State -> how it looks ("alert": a person is needed; "set": somebody has set it so; "calm") and what it means.
const STATES = {
  "silent": ["alert", "No forecast comes, though one should."],
  "no outcomes": ["alert", "Forecasts wait, and no outcome comes."],
  "score moved": ["alert", "The scores are not what they were."],
  "drifting": ["alert", "Forecasts no longer fit the outcomes."],
  "outcomes late": ["alert", "Outcomes come later than they used to."],
  "frozen, passthrough": ["set", "The answer is the score, and nothing is learnt."],
  "frozen": ["set", "It answers, and learns nothing until it is resumed."],
  "passthrough": ["set", "The answer is the score as it came."],
  "resuming": ["set", "It learns the outcomes that have waited."],
  "correcting": ["set", "It is replayed with corrected outcomes."],
  "no monitor": ["calm", "It has outcomes, and no monitor reads them: calibeat store configure --monitor 1000000 adds one."],
  "learning": ["calm", "Too few outcomes to judge it: fewer than 100."],
  "good": ["calm", "It has 100 outcomes or more, and no alarm is open."],
};

function makeBadge() {
  const badge = element("span", { class: "state" });
  badge.set = state => {
    write(badge, state);
    badge.dataset.kind = STATES[state]?.[0] ?? "calm";
    badge.title = STATES[state]?.[1] ?? "";
  };
  return badge;
}

// All streams, or those of one state: how many there are of each.
function makeFilters(choose) {
  const host = element("div", { class: "filters", role: "group", "aria-label": "Streams by state" });
  const fill = (counts, all, chosen) => {
    const names = Object.keys(STATES).filter(state => counts[state] || state === chosen);
    const key = JSON.stringify([names, chosen]);
    if (host.dataset.key !== key) {
      host.dataset.key = key;
      const focused = host.contains(document.activeElement) ? document.activeElement.dataset.state : null;
      host.replaceChildren(...["", ...names].map(state => element("button", {
        type: "button", "data-state": state, "data-kind": state ? STATES[state][0] : null, title: state ? STATES[state][1] : null,
        "aria-pressed": String(state === (chosen ?? "")), on: { click: () => choose(state || null) },
      }, element("span", {}, state || "all"), element("b", {}))));
      if (focused !== null) host.querySelector(`[data-state="${focused}"]`)?.focus();
    }
    for (const button of host.children) {
      const n = button.dataset.state ? counts[button.dataset.state] ?? 0 : all;
      write(button.lastChild, count(n));
    }
  };
  return { host, fill };
}

// What happened, since when, what to do. `look` is what the service says, or null.
function makeLook(id) {
  const host = element("div", { class: "look", id, role: "status" });
  const fill = (look, before, withStream) => {
    const key = JSON.stringify([look, before, zone, look && age(now() - look.since)]);
    if (host.dataset.key === key) return;
    host.dataset.key = key;
    host.classList.toggle("calm", !look);
    if (!look) { host.replaceChildren(element("p", {}, before)); return; }
    const since = known(look.since) ? `, since about ${stamp(look.since)} (${age(now() - look.since)})` : "";
    host.replaceChildren(element("p", {}, before, ...(withStream ? [streamLink(look.stream), ": "] : []),
      element("strong", {}, withStream ? look.text : look.text[0].toUpperCase() + look.text.slice(1)), `${since}. Look first at ${look.do}${/[.?!]$/.test(look.do) ? "" : "."}`));
  };
  return { host, fill };
}
