// Which screen is shown: the address behind # says it. "#/" is the list, "#/stream/NAME" a stream.
let current = null, cameFrom = null, listScroll = 0;

const list = makeList(to => { history.replaceState(null, "", to); route(); });
const stream = makeStream((name, span) => {
  history.replaceState(null, "", `#/stream/${encodeURIComponent(name)}${span === "month" ? "" : `?span=${span}`}`);
  route();
}, route);

const poller = makePoller({
  show: answer => {
    showOnly(current.id);
    current.screen.show(answer);
    if ("needs_token" in answer) {
      byId("logout").hidden = !answer.needs_token;
      write(byId("about"), `Method: ${answer.method.toUpperCase()}`);
    }
    arrived();
    ready();
  },
  same: () => { showOnly(current.id); current.screen.same(); },
  refused: () => { showLogin(); ready(); },
  missing: () => {
    announce("There is no such stream.");
    list.say(`There is no stream “${cameFrom}”. Here are all streams.`);
    history.replaceState(null, "", "#/");
    route();
  },
});

// The first answer is on the screen: tests wait for it, and the benchmark reads how long it took.
function ready() {
  if (root.dataset.ready === undefined) performance.mark("ready");
  root.dataset.ready = "";
}

// Back from a stream: to the place in the list, with the focus on its name.
function arrived() {
  if (current.id !== "list" || cameFrom === null) return;
  scrollTo(0, listScroll);
  list.focusOn(cameFrom);
  cameFrom = null;
}

function route() {
  const { hash } = location;
  if (hash && !hash.startsWith("#/")) return; // a place on the page, not a screen
  const found = /^#\/stream\/([^?]*)(?:\?(.*))?$/.exec(hash);
  let name = null;
  try { name = found ? decodeURIComponent(found[1]) : null; } catch { name = null; }
  const was = current?.id;
  if (name) {
    list.say("");
    if (was === "list") listScroll = scrollY;
    cameFrom = name;
    current = { id: "stream", screen: stream };
    poller.ask(stream.take(name, found[2] ?? ""));
  } else {
    current = { id: "list", screen: list };
    poller.ask(list.take(/^#\/\?(.*)$/.exec(hash)?.[1] ?? ""));
  }
}

addEventListener("hashchange", route);
startTheme();
startClock(() => { current.screen.same(); redrawAll(); route(); });
startPrinting();
startCopying();
startScrollers();
startLogin(route);
route();
