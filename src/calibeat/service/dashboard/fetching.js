// One question at a time, asked again every few seconds. Nothing is asked while the page is hidden.
const EVERY = 5, LONGEST = 60, PATIENCE = 20; // seconds

function makePoller({ show, same, refused, missing }) {
  let path = null, tag = null, text = null, timer = null, wait = EVERY, turn = 0, controller = null, answered = null;

  async function ask() {
    clearTimeout(timer);
    controller?.abort();
    controller = new AbortController();
    const mine = ++turn, patience = setTimeout(() => controller.abort(), 1000 * PATIENCE);
    try {
      const answer = await fetch(path, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store", signal: controller.signal });
      const body = answer.ok ? await answer.text() : null;
      if (mine !== turn) return;
      const date = Date.parse(answer.headers.get("date"));
      if (known(date)) skew = Math.round(date / 1000 - Date.now() / 1000);
      if (answer.status === 401) { stop(); setState("paused", "Not logged in"); refused(); return; }
      if (answer.status === 404) { stop(); missing(); return; }
      if (!answer.ok && answer.status !== 304) throw new Error(`status ${answer.status}`);
      wait = EVERY;
      answered = now();
      setState("live", "Live", answered);
      if (body !== null && body !== text) {
        tag = answer.headers.get("etag");
        text = body;
        show(JSON.parse(body));
      } else {
        if (body !== null) tag = answer.headers.get("etag");
        same();
      }
    } catch (problem) {
      if (mine !== turn) return;
      wait = Math.min(LONGEST, 2 * wait);
      setState("lost", "No answer", answered);
      if (!(problem instanceof TypeError) && problem.name !== "AbortError") console.warn(problem);
    } finally {
      clearTimeout(patience);
    }
    schedule();
  }

  function schedule() {
    clearTimeout(timer);
    if (path !== null && !document.hidden) timer = setTimeout(ask, 1000 * wait);
  }

  function stop() {
    clearTimeout(timer);
    path = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (path === null) return;
    if (!document.hidden) { ask(); return; }
    turn++;
    controller?.abort();
    clearTimeout(timer);
    setState("paused", "Paused");
  });

  return {
    stop,
    ask: to => {
      if (to !== path) { path = to; tag = text = null; wait = EVERY; }
      return ask();
    },
  };
}

// Said aloud only when it changes; the time beside it is for the eye.
function setState(kind, label, at = null) {
  const state = byId("live-state");
  if (state.dataset.kind && state.dataset.kind !== kind) announce(kind === "live" ? "Live again." : `${label}.`);
  state.dataset.kind = kind;
  write(state, label);
  write(byId("live-time"), at === null ? "" : `${kind === "live" ? "" : "since "}${asClock(at)}${zone === "UTC" ? " UTC" : ""}`);
}
