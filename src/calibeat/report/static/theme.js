// Light or dark, on paper, and copying a command.
const dark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
}

function startTheme() {
  const button = element("button", { type: "button", on: { click: () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    relabel();
    redrawAll();
  } } });
  const relabel = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`); };
  relabel();
  document.getElementById("theme").append(button);
  dark.addEventListener("change", () => { relabel(); redrawAll(); });
}

// Canvases of three pixels a point are as sharp on paper as a printer is.
const ON_PAPER = 3;

function drawFor(ratio) {
  window.devicePixelRatio = ratio;
  pixels.query.dispatchEvent(new Event("change"));
}

// Paper is white: canvases must be drawn again before they are printed.
function startPrinting() {
  const screen = window.devicePixelRatio;
  const expert = document.getElementById("expert");
  let before, open;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    if (expert) { open = expert.open; expert.open = true; }
    colours = null;
    drawFor(Math.max(ON_PAPER, screen));
    redrawAll();
  });
  addEventListener("afterprint", () => {
    if (expert) expert.open = open;
    if (before === undefined) delete root.dataset.theme;
    else root.dataset.theme = before;
    colours = null;
    drawFor(screen);
    redrawAll();
  });
}

function startCopying() {
  for (const command of document.querySelectorAll(".command code")) {
    const status = element("span", { class: "small", role: "status" });
    const button = element("button", { type: "button", id: command.id ? "copy" : null, on: { click: async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        status.textContent = "Copied.";
      } catch {
        getSelection().selectAllChildren(command);
        status.textContent = "Selected: press Ctrl-C or Cmd-C.";
      }
    } } }, "Copy");
    command.closest(".command").append(element("div", { class: "controls" }, button, status));
  }
}
