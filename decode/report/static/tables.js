// Splits a cell into its text and its note.
function parts(cell) {
  const note = cell.querySelector("small")?.textContent ?? "";
  return { text: note ? cell.textContent.slice(0, -note.length) : cell.textContent, note };
}
const pictureRows = (table) => [...table.rows].map((row) => [...row.cells].map(parts));

// Figures in full precision. A column of notes, such as intervals, follows if cells have some.
function figureRows(table) {
  const body = [...table.tBodies[0].rows];
  const noted = [...table.tHead.rows[0].cells].map((_, column) => body.some((row) => row.cells[column].querySelector("small")));
  const spread = (row, one) => [...row.cells].flatMap((cell, column) => one(cell, noted[column]));
  return [
    spread(table.tHead.rows[0], (cell, more) => (more ? [parts(cell).text, `${parts(cell).text}, interval`] : [parts(cell).text])),
    ...body.map((row) => spread(row, (cell, more) => {
      const { text, note } = parts(cell);
      const figure = "value" in cell.dataset ? Number(cell.dataset.value) : text;
      return more ? [figure, note] : [figure];
    })),
  ];
}

// Folded tables are unfolded for printing.
theme.onChange(() => {
  for (const one of document.querySelectorAll("details.folded")) {
    if (theme.printing() && !one.open) one.open = one.dataset.printed = true;
    else if (!theme.printing() && one.dataset.printed) {
      one.open = false;
      delete one.dataset.printed;
    }
  }
});

// A click on a header sorts by its column, a second click reverses the order. Rows without a figure stay last.
for (const table of document.querySelectorAll("table")) {
  const title = table.closest("details").querySelector(".caption").textContent;
  table.closest(".scroll").before(files.buttons(title, () => files.picture(pictureRows(table), title), () => files.csv(figureRows(table), title)));
  const headers = [...table.querySelectorAll("thead th")];
  const rows = table.tBodies[0];
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const numeric = [...rows.rows].some((row) => "value" in row.cells[column].dataset);
      const first = numeric ? "descending" : "ascending"; // the largest figures first
      const other = numeric ? "ascending" : "descending";
      const way = header.getAttribute("aria-sort") === first ? other : first;
      headers.forEach((one) => one.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", way);
      const key = (row) => {
        const { dataset, textContent } = row.cells[column];
        return numeric ? ("value" in dataset ? Number(dataset.value) : null) : textContent;
      };
      const sign = way === "ascending" ? 1 : -1;
      const compare = (a, b) => (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
      const sorted = [...rows.rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * compare(x, y);
      });
      rows.append(...sorted);
    });
  });
}
