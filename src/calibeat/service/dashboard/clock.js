// UTC, or the reader's own time if that was chosen. The choice is kept in this browser.
const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const ZONE_KEY = "calibeat-time";

function startClock(changed) {
  const stored = () => { try { return localStorage.getItem(ZONE_KEY); } catch { return null; } };
  const store = to => { try { localStorage.setItem(ZONE_KEY, to); } catch { /* a browser that keeps nothing */ } };
  const own = () => stored() === "local";
  const button = element("button", { type: "button", id: "zone", on: { click: () => {
    store(own() ? "utc" : "local");
    apply();
    changed();
  } } });
  const apply = () => {
    zone = own() ? OWN_ZONE : "UTC";
    write(button, own() ? "Local time" : "UTC");
    button.title = own() ? `Times are those of ${OWN_ZONE}` : "Times are in UTC";
    button.setAttribute("aria-label", `${button.title}. Switch to ${own() ? "UTC" : "local time"}`);
  };
  apply();
  byId("theme").before(button);
}
