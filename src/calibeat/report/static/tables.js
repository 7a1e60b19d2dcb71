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

// A table of thousands of rows, a page at a time, that can be searched by the name of a row and sorted by each column.
const ROWS_A_PAGE = 25;

function pagedTable(id, noun, names, columns, beforeRows = () => {}) {
  const table = document.getElementById(`${id}-table`), pager = document.getElementById(`${id}-pager`);
  const folded = names.map(name => name.toLowerCase()), order = names.map((_, i) => i);
  let wanted = "", page = 0, sorted = null;

  function drawHead() {
    const row = element("tr", {}, ...columns().map(({ label, sort }) => element("th", { scope: "col", "data-sort": sort }, label)));
    table.replaceChildren(element("thead", {}, row), element("tbody"));
    [...row.cells].forEach((heading, at) => sortButton(heading, direction => {
      sorted = { at, direction };
      page = 0;
      drawRows();
    }));
    if (sorted && row.cells[sorted.at]) row.cells[sorted.at].setAttribute("aria-sort", sorted.direction > 0 ? "ascending" : "descending");
    else sorted = null;
  }

  function drawRows() {
    const shown = columns();
    let rows = order.filter(i => folded[i].includes(wanted));
    if (sorted) {
      const { value } = shown[sorted.at];
      rows = rows.toSorted(byValue(sorted.direction, i => value(i) ?? null));
    }
    const pages = Math.max(1, Math.ceil(rows.length / ROWS_A_PAGE));
    page = Math.max(0, Math.min(page, pages - 1));
    const visible = rows.slice(page * ROWS_A_PAGE, (page + 1) * ROWS_A_PAGE);
    beforeRows(rows);
    table.tBodies[0].replaceChildren(...visible.map(i => element("tr", {}, ...shown.map(({ text, before, mark }, at) =>
      at === 0 ? element("th", { scope: "row", class: "key", title: text(i) }, element("bdi", {}, text(i))) :
        element("td", { class: mark?.(i) ? "number off" : "number" }, before?.(i), text(i))))));
    if (!visible.length) table.tBodies[0].append(element("tr", {}, element("td", { colspan: shown.length }, `No ${noun} matches.`)));
    status.textContent = rows.length ? `${count(page * ROWS_A_PAGE + 1)}–${count(page * ROWS_A_PAGE + visible.length)} of ${counted(rows.length, noun)}` : `0 ${noun}s`;
    back.disabled = page === 0;
    on.disabled = page >= pages - 1;
  }

  const turn = by => () => { page += by; drawRows(); };
  const status = element("span", { class: "small", role: "status", id: `${id}-status` });
  const back = element("button", { type: "button", on: { click: turn(-1) } }, "Previous");
  const on = element("button", { type: "button", on: { click: turn(1) } }, "Next");
  pager.append(back, status, on);
  const search = element("label", { class: "select" }, element("span", {}, "Find"), element("input", {
    type: "search", id: `${id}-search`, placeholder: `part of a ${noun}`, autocomplete: "off",
    on: { input: event => { wanted = event.target.value.trim().toLowerCase(); page = 0; drawRows(); } },
  }));
  return { search, drawRows, draw: () => { drawHead(); drawRows(); } };
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
  const all = element("button", { type: "button", id: "all-columns", "aria-pressed": "false", on: { click: () => {
    const every = table.classList.toggle("every");
    all.setAttribute("aria-pressed", String(every));
    all.textContent = every ? "Fewer columns" : "All columns";
  } } }, "All columns");
  document.getElementById("leaderboard-metric").append(all);
}
