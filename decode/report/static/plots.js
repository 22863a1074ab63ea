// The plots: plotly unpacked, every figure drawn in the page's colours, and drawn again when these change.
const plots = (() => {
  const data = JSON.parse(document.getElementById("data").textContent).plots;
  const paperWidth = 640; // px, what a sheet holds
  const drawn = [];

  async function unpack() {
    const bytes = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  function mixed(share) {
    const channels = (name) => theme.colour(name).match(/[0-9a-f]{2}/g).map((part) => parseInt(part, 16));
    const [from, to] = share < 0.5 ? ["scale-first", "scale-middle"].map(channels) : ["scale-middle", "scale-last"].map(channels);
    const part = share < 0.5 ? 2 * share : 2 * share - 1;
    return `rgb(${from.map((value, place) => Math.round(value + part * (to[place] - value))).join(", ")})`;
  }

  function coloured(trace) {
    const shade = trace.meta?.shade;
    const colour = shade === undefined ? theme.colour(`series-${trace.meta?.series}`) || theme.colour("series-other") : mixed(shade);
    const copy = { ...trace, error_y: trace.error_y && { ...trace.error_y, color: colour } };
    if (trace.type === "bar") return { ...copy, marker: { color: colour } };
    return { ...copy, line: { width: 2, ...trace.line, color: colour }, marker: { size: 7, ...trace.marker, color: colour } };
  }

  function layout(figure, width, traces) {
    const text = theme.colour("text");
    const axis = (own) => ({
      gridcolor: theme.colour("grid"), linecolor: theme.colour("border"), zeroline: false, automargin: true, ...own,
      title: { standoff: 10, font: { size: 12, color: theme.colour("muted") }, ...own?.title },
    });
    const narrow = width < 500;
    const legendRows = Math.ceil(traces.length / (narrow ? 2 : 6));
    return {
      ...figure.layout, width, height: Math.round(Math.min(460, Math.max(320, width * 0.5))) + 22 * legendRows,
      xaxis: axis(figure.layout.xaxis), yaxis: axis(figure.layout.yaxis),
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: text },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false, hovermode: "closest",
      hoverlabel: { bgcolor: theme.colour("surface"), bordercolor: theme.colour("border"), font: { color: text } },
      margin: { l: 48, r: 12, t: 8, b: 48 }, showlegend: traces.length > 1,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 }, ...(narrow && { x: -0.15, entrywidth: 98, font: { size: 11 } }) },
    };
  }

  function draw(one) {
    const view = one.figure.views[one.view];
    const width = theme.printing() ? paperWidth : one.canvas.parentElement.clientWidth;
    const traces = view.traces.map(coloured);
    return Plotly.react(one.canvas, traces, layout(one.figure, width, traces), { displayModeBar: false });
  }

  function choices(one, place) {
    if (one.figure.views.length < 2) return;
    const label = document.createElement("label");
    const select = document.createElement("select");
    label.append("Show ", select);
    one.figure.views.forEach((view, number) => select.append(new Option(view.name, number)));
    select.addEventListener("change", () => {
      one.view = Number(select.value);
      draw(one);
    });
    place.append(label);
  }

  async function start() {
    await unpack();
    for (const element of document.querySelectorAll("[data-plot]")) {
      const one = { figure: data[element.dataset.plot], canvas: element.querySelector(".canvas"), view: 0 };
      choices(one, element.querySelector(".views"));
      drawn.push(one);
      await draw(one);
    }
    theme.onChange(() => drawn.forEach((one) => draw(one)));
    addEventListener("resize", () => theme.printing() || drawn.forEach((one) => draw(one)));
    document.documentElement.dataset.plots = "drawn";
  }

  return { started: start() };
})();
