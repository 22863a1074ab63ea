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

// The uid tells plotly which curve of another view is the same one.
function coloured(trace, number) {
  const color = colourOf(trace.meta.series);
  const line = { ...trace.line, color };
  return { ...trace, uid: `curve${number}`, line, marker: { color }, error_y: { ...trace.error_y, color } };
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
function legendRows(traces, width) {
  const column = 48 + 6.5 * Math.max(...traces.map(({ name }) => name.length));
  return traces.length > 1 ? Math.ceil(traces.length / Math.max(1, Math.floor(width / column))) : 0;
}

function draw({ figure, canvas, select }) {
  const { traces } = figure.views[select?.value ?? 0];
  const width = document.documentElement.classList.contains("printing") ? paperWidth : canvas.clientWidth;
  const height = Math.min(380, Math.max(280, width * 0.42)) + 19 * legendRows(traces, width);
  const uirevision = traces.map(({ name }) => name).join(); // choices in the legend are kept for the same curves
  const layout = { ...figure.layout, template: template(), width, height, uirevision };
  return Plotly.react(canvas, traces.map(coloured), layout, { displayModeBar: false });
}

function savePng({ canvas, select, title }) {
  const filename = fileName(select ? `${title} ${select.selectedOptions[0].text}` : title);
  Plotly.downloadImage(canvas, { format: "png", filename, width: 1000, height: 560, scale: 2 });
}

// Names are escaped for plotly.
const plain = (name) => new DOMParser().parseFromString(name, "text/html").body.textContent;

// Every view and curve, a point a row; low and high are the ends of its interval.
function pointsOf({ views, layout }) {
  const points = (view, { name, x, y, error_y: bars }) => y.map((value, place) => {
    const ends = bars && value !== null ? [value - bars.arrayminus[place], value + bars.array[place]] : [null, null];
    return [view.name, plain(name), typeof x[place] === "string" ? plain(x[place]) : x[place], value, ...ends];
  });
  const axes = [plain(layout.xaxis.title.text) || "x", plain(layout.yaxis.title.text) || "y"];
  const rows = views.flatMap((view) => view.traces.flatMap((trace) => points(view, trace)));
  return [["view", "curve", ...axes, "low", "high"], ...rows];
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
    element.querySelector("[data-save=CSV]").addEventListener("click", () => saveCsv(pointsOf(plot.figure), title));
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
