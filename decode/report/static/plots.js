// The plots: unpacks plotly, draws every figure in the page's colours, and redraws it when these change.
const plots = (() => {
  const data = JSON.parse(document.getElementById("data").textContent).plots;
  const paperWidth = 640; // px that fit on a printed page
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

  // The curves to draw: those named at their ends, or all.
  const labelled = (one) => one.figure.labelled && !one.all;
  function shown(one) {
    const traces = one.figure.views[one.view].traces;
    return (labelled(one) ? traces.filter((trace) => !trace.meta?.further) : traces).map(coloured);
  }

  // The y range: from the lowest error bar to the highest, with a margin.
  function reach(traces) {
    const values = traces.flatMap(({ y, error_y: bars }) => y.flatMap((value, place) =>
      value === null ? [] : [value - (bars?.arrayminus[place] ?? 0), value + (bars?.array[place] ?? 0)]));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const air = 0.06 * (high - low || 1);
    return [low - air, high + air];
  }

  // The x range: from the first point to the last, with a margin; names at the ends are outside.
  function across(traces, logarithmic) {
    const values = traces.flatMap(({ x }) => (logarithmic ? x.map(Math.log10) : x));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const air = 0.03 * (high - low || 1);
    return [low - air, high + air];
  }

  function layout(one, width, traces) {
    const own = one.figure.layout;
    const text = theme.colour("text");
    const axis = (given) => ({
      gridcolor: theme.colour("grid"), linecolor: theme.colour("border"), zeroline: false, automargin: true, fixedrange: true, ...given,
      title: { standoff: 10, font: { size: 12, color: theme.colour("muted") }, ...given?.title },
    });
    const narrow = width < 500;
    const height = Math.round(labelled(one) ? Math.min(420, Math.max(320, width * 0.42)) : Math.min(300, Math.max(240, width * 0.42)));
    const made = {
      ...own, width, height, xaxis: axis(own.xaxis), yaxis: axis(own.yaxis),
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: text },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false, hovermode: "closest", showlegend: false,
      hoverlabel: { bgcolor: theme.colour("surface"), bordercolor: theme.colour("border"), font: { color: text } },
      margin: { l: 48, r: 12, t: 8, b: 48 },
    };
    if (!labelled(one)) return made;
    const y = reach(traces);
    made.margin.r = legend.room(traces, narrow);
    made.yaxis.range = y;
    made.xaxis.range = across(traces, own.xaxis.type === "log");
    made.annotations = legend.ends(traces, { logarithmic: own.xaxis.type === "log", y, pixels: height - made.margin.t - made.margin.b, narrow });
    return made;
  }

  function draw(one) {
    const width = theme.printing() ? paperWidth : one.canvas.parentElement.clientWidth;
    const traces = shown(one);
    const named = traces.length > 1 && !labelled(one);
    legend.show(one.legend, named ? traces : [], one.hidden, () => draw(one));
    const visible = traces.filter((trace) => !one.hidden.has(trace.name));
    return Plotly.react(one.canvas, visible, layout(one, width, visible), { displayModeBar: false });
  }

  // Title and view of a plot.
  const title = (one) => one.element.querySelector("figcaption").textContent;
  const told = (one) => (one.figure.views.length > 1 ? `${title(one)} ${one.figure.views[one.view].name}` : title(one));

  async function savePicture(one) {
    const [width, traces] = [1000, shown(one).filter((trace) => !one.hidden.has(trace.name))];
    const made = { ...layout(one, width, traces), height: 560, paper_bgcolor: theme.colour("page"), title: { text: title(one), font: { size: 16 } } };
    made.margin = { ...made.margin, t: 48 };
    if (labelled(one)) made.annotations = legend.ends(traces, { logarithmic: made.xaxis.type === "log", y: made.yaxis.range, pixels: 560 - 48 - 48, narrow: false });
    else made.showlegend = traces.length > 1;
    files.save(await Plotly.toImage({ data: traces, layout: made }, { format: "png", width, height: 560, scale: 2 }), files.named(told(one), "png"));
  }

  // Every view and curve, one row per point; low and high are the interval's ends.
  function saveFigures(one) {
    const rows = [["view", "curve", one.figure.layout.xaxis.title.text || "x", one.figure.layout.yaxis.title.text || "y", "low", "high"]];
    for (const view of one.figure.views) {
      for (const { name, x, y, error_y: bars } of view.traces) {
        x.forEach((at, place) => rows.push([
          view.name, legend.plain(name), typeof at === "string" ? legend.plain(at) : at, y[place],
          bars ? y[place] - bars.arrayminus[place] : null, bars ? y[place] + bars.array[place] : null,
        ]));
      }
    }
    files.csv(rows, title(one));
  }

  function choices(one, place) {
    if (one.figure.views.length > 1) {
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
    const count = one.figure.views[0].traces.length;
    if (one.figure.labelled && count > shown(one).length) {
      const button = document.createElement("button");
      button.type = "button";
      const name = () => (button.textContent = one.all ? "Fewer curves" : `All ${count} curves`);
      button.addEventListener("click", () => {
        one.all = !one.all;
        one.hidden.clear();
        name();
        draw(one);
      });
      name();
      place.append(button);
    }
    place.append(files.buttons(title(one), () => savePicture(one), () => saveFigures(one)));
  }

  async function start() {
    await unpack();
    for (const element of document.querySelectorAll("[data-plot]")) {
      const one = {
        element, figure: data[element.dataset.plot], canvas: element.querySelector(".canvas"), legend: element.querySelector(".legend"),
        view: 0, all: false, hidden: new Set(),
      };
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
