// The tables: sorted by a click on a header, saved as CSV.

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// The name of a file with this content, without its ending.
const fileName = (content) =>
  `${document.title} ${content}`.normalize("NFKD").toLowerCase().match(/[a-z0-9]+/g)?.join("-").slice(0, 120) ?? "file";

// A field of RFC 4180; null is empty. An apostrophe keeps spreadsheets from reading a text as a formula.
function field(value) {
  const text = typeof value === "string" ? value.replace(/^([=+@\t\r]|-[^\d.])/, "'$1") : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saveCsv(rows, content) {
  const lines = rows.map((row) => `${row.map(field).join(",")}\r\n`);
  const href = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
  make("a", { href, download: `${fileName(content)}.csv` }).click();
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
  const rows = [...table.tBodies[0].rows];
  const numeric = rows.some(({ cells }) => "value" in cells[column].dataset);
  const [first, second] = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
  const way = headers[column].getAttribute("aria-sort") === first ? second : first;
  const sign = way === "ascending" ? 1 : -1;
  const key = (cell) => (numeric ? cell.dataset.value ?? sign * Infinity : cell.textContent);
  const compare = (a, b) => sign * (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
  table.tBodies[0].append(...rows.sort((a, b) => compare(key(a.cells[column]), key(b.cells[column]))));
  headers.forEach((header) => header.removeAttribute("aria-sort"));
  headers[column].setAttribute("aria-sort", way);
}

for (const folded of document.querySelectorAll("[data-table]")) {
  const table = folded.querySelector("table");
  const title = folded.querySelector(".caption").textContent;
  folded.querySelector("[data-save=CSV]").addEventListener("click", () => saveCsv(rowsOf(table), title));
  table.tHead.addEventListener("click", ({ target }) => sort(table, target.closest("th").cellIndex));
}
