// Before uPlot, which draws canvases for the pixels of this screen, and again when they change. Paper has more of them: what
// uPlot asks the screen is kept here, so that theme.js can tell it so.
window.devicePixelRatio = Math.max(2, window.devicePixelRatio || 1);
const pixels = {};
{
  const ask = window.matchMedia.bind(window);
  window.matchMedia = query => query.includes("resolution") ? pixels.query = ask(query) : ask(query);
}
