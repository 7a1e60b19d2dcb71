// Alarms: what, where, since when; open or over; and the buttons of those who look after them.
const MUTE_HOURS = 12;
const SEGMENT_PART = -2, NOTICED = -1; // a segment that is wrong; what was noticed without outcomes; others are monitors, which count outcomes

// The monitor counts outcomes; the time of that forecast is easier to use, where it is known.
function alarmItem(alarm, withStream) {
  const region = /^(.*) from ([\d.e+-]+) to ([\d.e+-]+)$/.exec(alarm.what), isOpen = alarm.ended === null;
  const where = region ? ` where they are from ${region[2]} to ${region[3]}` : "";
  const calibration = alarm.part !== NOTICED, ours = calibration && !alarm.what.startsWith("raw score");
  const inSegment = alarm.part === SEGMENT_PART; // known since when it was found, and no more
  const since = inSegment ? "" : known(alarm.since_time) ? `since about ${stamp(alarm.since_time)}` : calibration ? `since about outcome ${count(alarm.since)}` : "";
  const notes = [since, `raised ${stamp(alarm.time)}${calibration ? `, at outcome ${count(alarm.at)}` : ""}`, isOpen ? "" : `over since ${stamp(alarm.ended)}`,
    alarm.page ? "" : "same episode as the one before", alarm.acknowledged === null ? "" : `acknowledged${alarm.acknowledged_by ? ` by ${alarm.acknowledged_by}` : ""}`];
  return element("li", { class: `${alarm.page ? "page" : "repeat"} ${isOpen ? "open" : "over"}` },
    element("p", { class: "what" }, element("span", { class: "state", "data-kind": isOpen ? "alert" : "calm" }, isOpen ? "open" : "over"), " ",
      ...(withStream ? [streamLink(alarm.stream), ": "] : []), element("strong", {}, `${ours ? "forecasts " : ""}${region ? region[1] : alarm.what}`), where, alarm.detail ? (calibration ? ` ${inSegment ? "in" : "of"} ${alarm.detail}` : ` (${alarm.detail})`) : ""),
    element("p", { class: "small" }, notes.filter(Boolean).join(" · ")));
}

// Fills a list of alarms only if it holds others.
function fillAlarms(list, alarms, withStream) {
  const key = JSON.stringify([alarms, zone]);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...alarms.map(alarm => alarmItem(alarm, withStream)));
}

// The alarms of one stream: those that are open, those that are over behind a fold, what can be done, and who watches.
function makeAlarms(again) {
  const open = element("ul", { class: "alarms" }), over = element("ul", { class: "alarms" }), quiet = element("p", { class: "small" });
  const summary = element("summary", {}), fold = element("details", { hidden: true }, summary, over);
  const problem = element("span", { class: "problem", role: "alert" });
  let data = null;
  const act = call => async () => {
    write(problem, "");
    try { await call(); again(); } catch (error) { write(problem, `${error.message}.`); }
  };
  const name = () => data.stream.name;
  const acknowledge = element("button", { type: "button", id: "acknowledge", title: "Somebody looks after it: follow-ups are not sent", on: { click: act(() => post("v1/alarms/acknowledge", { streams: name() })) } }, "Acknowledge");
  const mute = element("button", { type: "button", id: "mute", title: "Alarms of this stream are shown here and sent to nobody", on: {
    click: act(() => data.muted ? post(`v1/mutes?${new URLSearchParams({ streams: name() })}`, null, "DELETE") : post("v1/mutes", { streams: name(), seconds: 3600 * MUTE_HOURS })) } });
  const buttons = element("div", { class: "controls" }, acknowledge, mute, problem);

  function fill(view) {
    data = view;
    // The raw score is not what was told: it may never have fitted, and nobody is paged for it.
    const isRaw = alarm => alarm.what.startsWith("raw score "), isOpen = alarm => alarm.ended === null && !isRaw(alarm);
    const raised = view.alarms.filter(isOpen), ended = view.alarms.filter(alarm => !isOpen(alarm)), raw = ended.filter(isRaw).length, gone = ended.length - raw;
    fillAlarms(open, raised, false);
    fillAlarms(over, ended, false);
    fold.hidden = !ended.length;
    write(summary, [gone ? `${counted(gone, "alarm")} that ${gone === 1 ? "is" : "are"} over` : "", raw ? `${counted(raw, "alarm")} of the raw score, which is corrected here` : ""].filter(Boolean).join("; "));
    write(quiet, [raised.length ? "" : "No alarm is open.", watchWords(view)].filter(Boolean).join(" "));
    buttons.hidden = !view.may_write || !(raised.length || view.muted);
    acknowledge.hidden = !raised.length;
    acknowledge.disabled = raised.every(alarm => alarm.acknowledged !== null);
    write(acknowledge, acknowledge.disabled ? "Acknowledged" : "Acknowledge");
    write(mute, view.muted ? "Unmute" : `Mute for ${MUTE_HOURS} h`);
  }
  return { parts: [open, buttons, quiet, fold], fill };
}

// Never "watched" where nothing can be seen: the service says what is watched by now, and what is not.
function watchWords({ stream, monitored, muted }) {
  const words = stream.frozen ? "It is frozen: outcomes wait, and the monitor reads none of them." : !monitored ? "No monitor reads its outcomes: calibeat store configure --monitor 1000000 adds one." : "";
  const seen = stream.frozen || !stream.watching ? "" : `${stream.watching[0].toUpperCase()}${stream.watching.slice(1)}.`;
  return [words, seen, muted ? "Its alarms are muted: they are shown here and sent to nobody." : ""].filter(Boolean).join(" ");
}
