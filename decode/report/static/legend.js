// The names of curves: in a legend that toggles them, or at their ends.
const legend = (() => {
  const plain = (name) => new DOMParser().parseFromString(name, "text/html").body.textContent; // names are escaped for plotly
  const dashes = { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3" };

  function swatch(trace) {
    const colour = trace.type === "bar" ? trace.marker.color : trace.line.color;
    const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [key, value] of [["width", 22], ["height", 10], ["aria-hidden", true]]) picture.setAttribute(key, value);
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const shape = { d: "M1 5H21", stroke: colour, "stroke-width": trace.type === "bar" ? 8 : 2.5, "stroke-dasharray": dashes[trace.line?.dash] ?? "none" };
    for (const [key, value] of Object.entries(shape)) line.setAttribute(key, value);
    picture.append(line);
    return picture;
  }

  // hidden: names that are not drawn. A click toggles a curve; a double click shows only this curve, or all again.
  function show(place, traces, hidden, redraw) {
    place.replaceChildren(...traces.map((trace) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(swatch(trace), plain(trace.name));
      button.setAttribute("aria-pressed", String(!hidden.has(trace.name)));
      button.addEventListener("click", (event) => {
        if (event.detail > 1) {
          const others = traces.filter((one) => one !== trace).map((one) => one.name);
          const alone = others.every((name) => hidden.has(name));
          hidden.clear();
          if (!alone) others.forEach((name) => hidden.add(name));
        } else if (!hidden.delete(trace.name)) hidden.add(trace.name);
        redraw();
      });
      return button;
    }));
  }

  const broken = (name) => {
    const middle = name.length / 2;
    const blanks = [...name.matchAll(/ /g)].map((one) => one.index).sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
    return blanks.length ? `${name.slice(0, blanks[0])}<br>${name.slice(blanks[0] + 1)}` : name;
  };

  // Annotations at the last point of each curve, without overlap. y: range of the axis; pixels: its length.
  function ends(traces, { logarithmic, y, pixels, narrow }) {
    const gap = narrow ? 30 : 16;
    const found = traces.map((trace) => {
      const last = trace.y.findLastIndex((value) => value !== null);
      const [x, value] = [trace.x[last], trace.y[last]];
      return { trace, value, x: logarithmic ? Math.log10(x) : x, at: ((value - y[0]) / (y[1] - y[0])) * pixels };
    }).filter((one) => Number.isFinite(one.at)).sort((a, b) => a.at - b.at);
    let lowest = -Infinity;
    return found.map((one) => {
      const placed = Math.max(one.at, lowest + gap);
      lowest = placed;
      return {
        x: one.x, y: one.value, xanchor: "left", yanchor: "middle", xshift: 9, yshift: placed - one.at, align: "left", showarrow: false,
        text: narrow ? broken(one.trace.name) : one.trace.name, font: { size: narrow ? 11 : 13, color: one.trace.line.color },
      };
    });
  }

  // Width of the names beside the plot, in pixels.
  const room = (traces, narrow) => 18 + Math.max(...traces.map(({ name }) => Math.max(...(narrow ? broken(name) : name).split("<br>").map((part) => part.length * (narrow ? 6.2 : 7.4)))));

  return { show, ends, room, plain };
})();
