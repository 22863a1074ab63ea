// The plots: unpacks plotly, draws every figure in the page's colours, and redraws it when these or its width change.
const { plots: figures, browser: lattices } = JSON.parse(document.getElementById("data").textContent);
const paperWidth = 640; // px that fit on a printed page
const probe = document.body.appendChild(make("span"));

async function unpackPlotly() {
  const bytes = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  document.head.append(make("script", {}, await new Response(stream).text()));
}

// What a colour of CSS is in the present scheme: rgb(..).
function colour(css) {
  probe.style.color = css;
  return getComputedStyle(probe).color;
}

// The colour of a series: by name, or of its place in 0..1 on a scale from yellow through pink to blue.
function colourOf(series) {
  if (typeof series === "string") return colour(`var(--series-${series}, var(--series-other))`);
  const hue = 400 - 150 * series;
  return colour(`light-dark(hsl(${hue} 80% 40%), hsl(${hue} 85% 68%))`);
}

// Plotly interprets some HTML tags.
const escaped = (text) => (typeof text === "string" ? text.replaceAll("&", "&amp;").replaceAll("<", "&lt;") : text);
const valueOf = (y) => y?.value ?? y; // a number, null, or an interval {value, low, high}

// A plotly trace. The uid tells plotly which curve of another view is the same one.
function traceOf({ name, x, y, series, dash, mode, texts, hidden }, number) {
  const color = colourOf(series);
  const lengths = (from, to) => y.map((one) => (one?.low == null ? 0 : Math.max(0, one[to] - one[from])));
  const [array, arrayminus] = [lengths("value", "high"), lengths("low", "value")];
  const visible = [...array, ...arrayminus].some(Boolean);
  return {
    uid: `curve${number}`, name: escaped(name), x: x.map(escaped), y: y.map(valueOf),
    type: mode === "bars" ? "bar" : "scatter", mode, line: { dash, color }, marker: { color },
    error_y: { type: "data", symmetric: false, array, arrayminus, visible, thickness: 1.2, width: 3, color },
    visible: hidden ? "legendonly" : true,
    ...(texts.length && { text: texts.map(escaped), hovertemplate: "%{text}<br>%{y}<extra></extra>" }),
  };
}

function layoutOf({ x, y, xaxis, yaxis, percent, stacked }) {
  const titled = (title, axis) => ({ title: { text: escaped(title) }, ...axis });
  const tickformat = percent ? ".0%" : "";
  return { xaxis: titled(x, xaxis), yaxis: { tickformat, ...titled(y, yaxis) }, barmode: stacked ? "stack" : "group" };
}

// Plotly's defaults for all plots.
function template() {
  const [text, muted, grid, page] = ["text", "muted", "grid", "page"].map((name) => colour(`var(--${name})`));
  const title = { standoff: 10, font: { size: 12, color: muted } };
  const axis = { title, gridcolor: grid, linecolor: grid, zeroline: false, automargin: true, fixedrange: true };
  return { layout: {
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: text },
    paper_bgcolor: page, plot_bgcolor: page, dragmode: false, hovermode: "closest", xaxis: axis, yaxis: axis,
    legend: { orientation: "h", xref: "container", yref: "container", x: 0, y: 0, yanchor: "bottom", maxheight: 1 },
    margin: { l: 48, r: 12, t: 8, b: 48 },
  } };
}

// Rows of the legend, whose columns are as wide as its longest name.
function legendRows(curves, width) {
  const column = 48 + 6.5 * Math.max(...curves.map(({ name }) => name.length));
  return curves.length > 1 ? Math.ceil(curves.length / Math.max(1, Math.floor(width / column))) : 0;
}

function draw({ figure, canvas, select }) {
  const [, curves] = figure.views[select?.value ?? 0];
  const width = document.documentElement.classList.contains("printing") ? paperWidth : canvas.clientWidth;
  const height = Math.min(380, Math.max(280, width * 0.42)) + 19 * legendRows(curves, width);
  const uirevision = curves.map(({ name }) => name).join(); // choices in the legend are kept for the same curves
  const layout = { ...layoutOf(figure), template: template(), width, height, uirevision };
  return Plotly.react(canvas, curves.map(traceOf), layout, { displayModeBar: false });
}

function savePng({ canvas, select, title }) {
  const filename = fileName(select ? `${title} ${select.selectedOptions[0].text}` : title);
  Plotly.downloadImage(canvas, { format: "png", filename, width: 1000, height: 560, scale: 2 });
}

const drawn = [];
const redraw = () => drawn.forEach(draw);

// On paper: light, and as wide as a sheet.
function print(now) {
  document.documentElement.classList.toggle("printing", now);
  redraw();
}

async function drawAll() {
  await unpackPlotly();
  for (const element of document.querySelectorAll("[data-plot]")) {
    const [canvas, select] = [element.querySelector(".canvas"), element.querySelector("select")];
    const title = element.querySelector("figcaption").textContent;
    const plot = { figure: figures[element.dataset.plot], canvas, select, title };
    select?.addEventListener("change", () => draw(plot));
    element.querySelector("[data-save=PNG]").addEventListener("click", () => savePng(plot));
    await draw(plot);
    drawn.push(plot);
  }
  addEventListener("resize", redraw);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.documentElement.dataset.plots = "drawn";
}
const plotsDrawn = drawAll();
