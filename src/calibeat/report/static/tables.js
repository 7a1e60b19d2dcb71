// Tables that sort by a click or the keyboard on their headings.
function sortValue(cell, kind) {
  const value = cell?.dataset.value;
  if (value === undefined) return null;
  return kind === "text" ? value : Number(value);
}

// What is unknown stays last, whichever way the rest goes.
function byValue(direction, value) {
  return (a, b) => {
    const x = value(a), y = value(b);
    if (x === null || y === null) return (x === null) - (y === null);
    return direction * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
  };
}

function sortButton(heading, call) {
  const button = element("button", { type: "button", class: "sort", title: heading.title || null }, ...heading.childNodes);
  heading.replaceChildren(button);
  button.addEventListener("click", () => {
    const was = heading.getAttribute("aria-sort");
    const up = heading.dataset.sort !== "high";
    const to = was === null ? (up ? "ascending" : "descending") : was === "ascending" ? "descending" : "ascending";
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", to);
    call(to === "ascending" ? 1 : -1);
  });
}

function makeSortable(table) {
  const body = table.tBodies[0];
  for (const heading of table.tHead.rows[0].cells) {
    sortButton(heading, direction => {
      const at = heading.cellIndex, value = row => sortValue(row.cells[at], heading.dataset.sort);
      body.append(...[...body.rows].sort(byValue(direction, value)));
    });
  }
}

// An edge behind which there are columns fades; without it nobody would look for them.
function startScrollers() {
  for (const frame of document.querySelectorAll(".sideways")) {
    const inner = frame.querySelector(".scroller");
    const look = () => {
      const rest = inner.scrollWidth - inner.clientWidth;
      frame.classList.toggle("more-left", inner.scrollLeft > 1);
      frame.classList.toggle("more-right", inner.scrollLeft < rest - 1);
    };
    inner.addEventListener("scroll", look, { passive: true });
    const watch = new ResizeObserver(look);
    watch.observe(inner);
    watch.observe(inner.firstElementChild);
    look();
  }
}

function startLeaderboard(payload, styles) {
  const table = document.getElementById("leaderboard");
  makeSortable(table);
  table.tHead.rows[0].cells[1].setAttribute("aria-sort", "ascending");
  for (const row of table.tBodies[0].rows) row.cells[0].prepend(swatch(styles[row.dataset.method]));
  const show = metric => {
    for (const cell of table.querySelectorAll("[data-metric]")) cell.hidden = cell.dataset.metric !== metric;
  };
  document.getElementById("leaderboard-metric").append(
    choice("Compare by", [["log_loss", "Log-loss"], ["brier", "Brier"], ["ce", "CE"]], "log_loss", show));
  show("log_loss");
}
