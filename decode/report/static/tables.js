// The tables: sorted by a click on a header, saved as CSV. The menu of sections.

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// The name of a file with this content, without its ending.
function fileName(content) {
  const words = `${document.title} ${content}`.normalize("NFKD").toLowerCase().match(/[a-z0-9]+/g) ?? ["report"];
  return words.join("-").slice(0, 120);
}

// A field of RFC 4180; null is empty. An apostrophe keeps spreadsheets from reading a text as a formula.
function field(value) {
  const text = String(value ?? "");
  const safe = typeof value === "string" && /^([=+@\t\r]|-[^\d.])/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function saveCsv(rows, content) {
  const lines = rows.map((row) => `${row.map(field).join(",")}\r\n`);
  const href = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
  make("a", { href, download: `${fileName(content)}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

// A cell's figure in full precision, or its text; and its note, such as an interval.
function contentOf(cell) {
  const note = cell.querySelector("small")?.textContent ?? "";
  const text = cell.textContent.slice(0, cell.textContent.length - note.length);
  return { figure: "value" in cell.dataset ? Number(cell.dataset.value) : text, note };
}

// The header and the rows of a table. A column of notes follows each column that has some.
function rowsOf(table) {
  const [headers, ...rows] = [...table.rows].map((row) => [...row.cells].map(contentOf));
  const noted = headers.map((_, column) => rows.some((row) => row[column].note));
  headers.forEach((header) => (header.note = `${header.figure}, interval`));
  return [headers, ...rows].map((row) =>
    row.flatMap(({ figure, note }, column) => (noted[column] ? [figure, note] : [figure])));
}

// Sorts by a column: the largest figures first, texts from A to Z, the second time the other way round. Rows without a
// figure stay last.
function sort(table, column) {
  const headers = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const keys = new Map([...body.rows].map((row) => [row, contentOf(row.cells[column]).figure]));
  const isFigure = (key) => typeof key === "number";
  const numeric = [...keys.values()].some(isFigure);
  const ways = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
  const way = headers[column].getAttribute("aria-sort") === ways[0] ? ways[1] : ways[0];
  const sign = way === "ascending" ? 1 : -1;
  const compare = (a, b) => {
    if (numeric) return isFigure(b) - isFigure(a) || sign * (a - b);
    return sign * a.localeCompare(b, "en", { numeric: true });
  };
  body.append(...[...keys].sort(([, a], [, b]) => compare(a, b)).map(([row]) => row));
  headers.forEach((header) => header.removeAttribute("aria-sort"));
  headers[column].setAttribute("aria-sort", way);
}

for (const folded of document.querySelectorAll("[data-table]")) {
  const table = folded.querySelector("table");
  const title = folded.querySelector(".caption").textContent;
  folded.querySelector("[data-save=CSV]").addEventListener("click", () => saveCsv(rowsOf(table), title));
  table.querySelectorAll("thead button").forEach((button, column) =>
    button.addEventListener("click", () => sort(table, column)));
}

document.querySelector("#menu nav").addEventListener("click", (event) => (event.currentTarget.parentNode.open = false));
