// A click on a header sorts by its column, another one the other way round. Rows without a figure stay last.
for (const table of document.querySelectorAll("table")) {
  const headers = [...table.querySelectorAll("thead th")];
  const rows = table.tBodies[0];
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const numeric = [...rows.rows].some((row) => "value" in row.cells[column].dataset);
      const first = numeric ? "descending" : "ascending"; // the greatest figure is what one looks for
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
