// A token tree as SVG: columns are heads, a node lies midway between its first and last child; the accepted path is bold.
const drawTree = (() => {
  const size = { chip: 84, gap: 14, row: 30, height: 24, top: 24 };
  const svg = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // nodes: [token, parent, percent]; root: the root token; truth: tokens that follow it; listed(token, depth): whether a head lists it
  return (nodes, root, truth, label, listed) => {
    const children = [...nodes, null].map(() => []);
    const depth = [];
    nodes.forEach(([, parent], node) => {
      children[parent < 0 ? nodes.length : parent].push(node);
      depth.push(parent < 0 ? 1 : depth[parent] + 1);
    });
    const accepted = new Set();
    let at = nodes.length;
    for (const token of truth) {
      const next = children[at].find((child) => nodes[child][0] === token);
      if (next === undefined) break;
      accepted.add((at = next));
    }
    let leaves = 0;
    const row = [];
    const place = (node) => {
      const below = children[node].map(place);
      return (row[node] = below.length ? (below[0] + below[below.length - 1]) / 2 : leaves++);
    };
    place(nodes.length);

    const x = (node) => (node === nodes.length ? 0 : depth[node]) * (size.chip + size.gap);
    const y = (node) => size.top + row[node] * size.row;
    const width = Math.max(0, ...depth) * (size.chip + size.gap) + size.chip;
    const height = size.top + leaves * size.row;
    const name = `Tree of ${nodes.length} nodes, ${accepted.size} accepted`;
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name });
    for (let head = 1; head <= Math.max(0, ...depth); head++) {
      picture.append(svg("text", { x: head * (size.chip + size.gap), y: 12, class: "head" }, `head ${head + 1}`));
    }
    nodes.forEach(([, parent], node) => {
      const from = parent < 0 ? nodes.length : parent;
      const [x0, y0, x1, y1] = [x(from) + size.chip, y(from) + size.height / 2, x(node), y(node) + size.height / 2];
      const middle = (x0 + x1) / 2;
      const line = `M${x0} ${y0}C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`;
      picture.append(svg("path", { d: line, class: accepted.has(node) ? "edge true" : "edge" }));
    });
    const chip = (node, text, share, kind) => {
      const group = svg("g", { class: `chip ${kind}` });
      group.append(
        svg("rect", { x: x(node) + 1, y: y(node) + 1, width: size.chip - 2, height: size.height - 2, rx: 5 }),
        svg("text", { x: x(node) + 5, y: y(node) + 16, class: "token" }, text.length > 6 ? `${text.slice(0, 5)}…` : text),
        svg("text", { x: x(node) + size.chip - 5, y: y(node) + 16, class: "share" }, share),
        svg("title", {}, `${text} ${share}`),
      );
      picture.append(group);
    };
    chip(nodes.length, label(root), "", "root");
    nodes.forEach(([token, , percent], node) => {
      const kind = [accepted.has(node) && "true", !listed(token, depth[node]) && "proposed"].filter(Boolean).join(" ");
      chip(node, label(token), percent < 0.1 ? "<0.1%" : `${percent < 10 ? percent.toFixed(1) : percent.toFixed(0)}%`, kind);
    });
    return picture;
  };
})();
