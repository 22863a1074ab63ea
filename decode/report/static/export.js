// Files made in the page: figures as CSV, tables as pictures. File names are made from titles.
const files = (() => {
  const named = (what, ending) =>
    `${`${document.title} ${what}`.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 120)}.${ending}`;

  function save(href, name) {
    const link = document.createElement("a");
    [link.href, link.download] = [href, name];
    link.click();
  }
  function saveBlob(blob, name) {
    const address = URL.createObjectURL(blob);
    save(address, name);
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  // RFC 4180. An apostrophe keeps spreadsheets from reading a cell as a formula.
  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const safe = /^([=+@\t\r]|-[^\d.])/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }
  function csv(rows, what) {
    const content = rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
    saveBlob(new Blob([content], { type: "text/csv" }), named(what, "csv"));
  }

  // Rows of { text, note }; the first is the header.
  function picture(rows, what) {
    const [line, small, pad, scale] = [22, 13, 10, 2];
    const canvas = document.createElement("canvas");
    const pen = canvas.getContext("2d");
    const family = getComputedStyle(document.body).fontFamily;
    const fonts = { text: `13px ${family}`, head: `600 13px ${family}`, note: `10px ${family}`, title: `600 15px ${family}` };
    const width = (text, font) => ((pen.font = fonts[font]), pen.measureText(text).width);
    const widths = rows[0].map((_, column) =>
      Math.max(...rows.map((row, place) => Math.max(width(row[column].text, place ? "text" : "head"), width(row[column].note, "note")))) + 2 * pad);
    const heights = rows.map((row) => line + (row.some((one) => one.note) ? small : 0));
    const size = [Math.max(widths.reduce((a, b) => a + b), width(what, "title") + 2 * pad), heights.reduce((a, b) => a + b) + line + 2 * pad];
    [canvas.width, canvas.height] = size.map((one) => Math.ceil(one * scale));
    pen.scale(scale, scale);
    pen.fillStyle = theme.colour("page");
    pen.fillRect(0, 0, ...size);
    const write = (text, font, colour, x, y, right) => {
      [pen.font, pen.fillStyle, pen.textAlign] = [fonts[font], theme.colour(colour), right ? "right" : "left"];
      pen.fillText(text, x, y);
    };
    write(what, "title", "text", pad, pad + 16, false);
    let y = pad + line;
    rows.forEach((row, place) => {
      let x = 0;
      row.forEach((one, column) => {
        const [at, right] = column ? [x + widths[column] - pad, true] : [x + pad, false];
        write(one.text, place ? "text" : "head", place ? "text" : "muted", at, y + 16, right);
        write(one.note, "note", "muted", at, y + 16 + small, right);
        x += widths[column];
      });
      y += heights[place];
      pen.fillStyle = theme.colour(place ? "grid" : "border");
      pen.fillRect(0, y - 1, size[0], 1);
    });
    canvas.toBlob((blob) => saveBlob(blob, named(what, "png")));
  }

  // Buttons that save a plot or table.
  function buttons(what, savePicture, saveFigures) {
    const group = document.createElement("span");
    group.className = "save";
    for (const [kind, action] of [["PNG", savePicture], ["CSV", saveFigures]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind;
      button.setAttribute("aria-label", `Save as ${kind}: ${what}`);
      button.addEventListener("click", action);
      group.append(button);
    }
    return group;
  }

  return { named, save, csv, picture, buttons };
})();
