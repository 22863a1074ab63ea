// The lattice browser: one pass of one sequence at a time, in the order of the tree's replay. The address has the state:
// #lattices?task=..&sequence=..&position=.., with &tree=open and &ranks=all if selected.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent).browser;
  const place = document.getElementById("browser");
  if (!data || !place) return;
  const tasks = [...new Set(data.sequences.map((one) => one.task))];
  const folded = 8; // ranks beyond it are shown on demand
  let [sequence, step, tree, allRanks] = [data.sequences[0], 0, "tree", false];

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }
  const label = (token) => (data.words ? data.words[token] || "∅" : String(token));
  // in running text: blanks and line breaks as they are
  const spelled = (token) => data.words[token].replace(/^·+|·+$/g, (dots) => " ".repeat(dots.length)).replaceAll("↵", "↵\n");
  const percent = (value) => (value < 0.1 ? "<0.1%" : `${value < 10 ? value.toFixed(1) : value.toFixed(0)}%`);

  const task = make("select", { "aria-label": "Task" }, ...tasks.map((name) => new Option(name)));
  const number = make("select", { "aria-label": "Sequence" });
  const back = make("button", { type: "button", class: "step", "aria-label": "Previous pass" }, "←");
  const on = make("button", { type: "button", class: "step", "aria-label": "Next pass" }, "→");
  const slider = make("input", { type: "range", min: 0, "aria-label": "Pass" });
  const count = make("output", { "aria-live": "polite" });
  const text = make("div", { class: "text", tabindex: 0, role: "region", "aria-label": "The text so far" });
  const verdict = make("div", { class: "verdict" });
  const grid = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Candidates of every head" });
  const trees = make("div", { class: "trees" });
  const kinds = { tree: "tree of the lattice", open: "open tree" };
  const kind = make("select", { "aria-label": "Tree" }, ...Object.entries(kinds).map(([key, name]) => new Option(name, key)));
  const notice = make("p", { class: "gist", role: "status" });
  const more = make("button", { type: "button", class: "more" });

  function showText(pass, truth) {
    const words = (tokens, kind) => make("span", { class: kind }, data.words ? tokens.map(spelled).join("") : `${tokens.join(" ")} `);
    const done = sequence.tokens.slice(0, pass.row);
    const accepted = truth.slice(0, pass.accepted.tree);
    const rest = sequence.tokens.slice(pass.row + 1 + accepted.length);
    text.replaceChildren(
      words(sequence.prompt, "prompt"), words(done, "done"), words([sequence.tokens[pass.row]], "root"),
      words(accepted, "accepted"), words(rest, "rest"),
    );
    const now = text.querySelector(".root");
    text.scrollTop = now.offsetTop - text.clientHeight / 2;
  }

  function showVerdict(pass) {
    const names = [["base", "base draft"], ...(data.lm ? [["best", "rescored draft"]] : []), ["tree", `tree of ${pass.tree.length}`], ...(pass.open ? [["open", `open tree of ${pass.open.length}`]] : [])];
    verdict.replaceChildren(...names.map(([key, name]) => make("span", { class: `mark ${key}` }, `${name}: `, make("b", {}, String(pass.accepted[key])), " accepted")));
  }

  function cell(pass, slot, rank, truth) {
    const token = pass.ids[slot][rank];
    if (token === undefined || token < 0) return make("td", {});
    const marks = [];
    if (pass.base[slot] === token) marks.push("base");
    if (data.lm && pass.best[slot] === token) marks.push("best");
    const isTrue = truth[slot] === token;
    const figures = [percent(pass.p[slot][rank])];
    if (data.lm) figures.push(`+${pass.lm[slot][rank].toFixed(1)}`);
    const described = [isTrue && "the true token", marks.includes("base") && "base draft", marks.includes("best") && "rescored draft"].filter(Boolean);
    const inside = make("div", { class: "candidate", style: `--p: ${Math.min(100, pass.p[slot][rank])}%`, title: [label(token), ...described].join(", ") });
    const line = make("div", {}, make("span", { class: "token" }, label(token)));
    if (isTrue) line.append(make("span", { class: "tick", role: "img", "aria-label": "the true token" }, "✓"));
    line.append(...marks.map((mark) => make("span", { class: `dot ${mark}`, role: "img", "aria-label": mark === "base" ? "base draft" : "rescored draft" })));
    inside.append(line, make("small", {}, figures.join(" ")));
    return make("td", isTrue ? { class: "true" } : {}, inside);
  }

  function showGrid(pass, truth) {
    const slots = pass.ids.map((_, slot) => slot);
    const count = Math.max(...pass.ids.map((ids) => ids.length));
    const ranks = Array.from({ length: allRanks ? count : Math.min(count, folded) }, (_, rank) => rank);
    const heads = slots.map((slot) => make("th", { scope: "col" }, `head ${slot + 2}`));
    const truths = slots.map((slot) => {
      if (slot >= truth.length) return make("td", { class: "truth" });
      const rank = pass.ids[slot].indexOf(truth[slot]);
      const where = rank < 0 ? "not in the lattice" : rank >= ranks.length ? `rank ${rank + 1}` : "";
      return make("td", { class: "truth" }, label(truth[slot]), ...(where ? [make("small", {}, where)] : []));
    });
    grid.replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "rank"), ...heads), make("tr", {}, make("th", { scope: "row" }, "truth"), ...truths)),
      make("tbody", {}, ...ranks.map((rank) => make("tr", {}, make("th", { scope: "row" }, String(rank + 1)), ...slots.map((slot) => cell(pass, slot, rank, truth)))))));
    more.hidden = count <= folded;
    more.textContent = allRanks ? `Ranks 1 to ${folded}` : `Ranks ${folded + 1} to ${count}`;
  }

  function showTree(pass, truth) {
    const listed = (token, depth) => pass.ids[depth - 1].includes(token);
    const told = tree === "open" ? [make("p", { class: "gist" }, "Dashed: proposed by the language model or the running text, listed by no head.")] : [];
    const picture = drawTree(pass[tree], sequence.tokens[pass.row], truth, label, listed);
    trees.replaceChildren(...told, make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": kinds[tree] }, picture));
  }

  function show() {
    const pass = sequence.passes[step];
    slider.max = Math.max(0, sequence.passes.length - 1);
    slider.value = step;
    slider.disabled = sequence.passes.length < 2;
    back.disabled = step === 0;
    on.disabled = step >= sequence.passes.length - 1;
    kind.value = tree;
    task.value = sequence.task;
    number.replaceChildren(...data.sequences.filter((one) => one.task === sequence.task).map((one) => new Option(`sequence ${one.number}`, data.sequences.indexOf(one))));
    number.value = data.sequences.indexOf(sequence);
    count.value = pass ? `pass ${step + 2} of ${sequence.passes.length + 1}` : "the prompt's pass generated the whole text";
    if (!pass) return [text, verdict, grid, trees].forEach((one) => one.replaceChildren(), (more.hidden = true));
    const truth = sequence.tokens.slice(pass.row + 1, pass.row + 1 + pass.ids.length);
    showText(pass, truth);
    showVerdict(pass);
    showGrid(pass, truth);
    showTree(pass, truth);
  }

  // Writes the state to the address, without an entry in the history for every step.
  function tell() {
    const state = new URLSearchParams({ task: sequence.task, sequence: sequence.number, position: sequence.passes[step]?.row ?? 0 });
    if (tree !== "tree") state.set("tree", tree);
    if (allRanks) state.set("ranks", "all");
    history.replaceState(null, "", `#lattices?${state}`);
  }
  // Reads the state from the address: the last pass at or before the position. False if the address has no state.
  function follow() {
    const [, query] = location.hash.match(/^#lattices\?(.*)$/) ?? [];
    if (query === undefined) return false;
    const state = new URLSearchParams(query);
    const named = data.sequences.find((one) => one.task === state.get("task") && String(one.number) === state.get("sequence"));
    notice.textContent = named ? "" : `This page has no sequence ${state.get("sequence")} of ${state.get("task")}; this is another one.`;
    sequence = named ?? sequence;
    step = Math.max(0, sequence.passes.findLastIndex((pass) => pass.row <= Number(state.get("position"))));
    tree = state.get("tree") === "open" && data.lm ? "open" : "tree";
    allRanks = state.get("ranks") === "all";
    return true;
  }
  function change() {
    notice.textContent = "";
    show();
    tell();
  }
  function move(by) {
    step = Math.max(0, Math.min(sequence.passes.length - 1, step + by));
    change();
  }
  function choose(chosen) {
    [sequence, step] = [chosen, 0];
    change();
  }
  function arrive() {
    const here = follow();
    show();
    if (here) place.scrollIntoView();
  }

  task.addEventListener("change", () => choose(data.sequences.find((one) => one.task === task.value)));
  number.addEventListener("change", () => choose(data.sequences[Number(number.value)]));
  kind.addEventListener("change", () => {
    tree = kind.value;
    change();
  });
  more.addEventListener("click", () => {
    allRanks = !allRanks;
    change();
  });
  addEventListener("hashchange", arrive);
  back.addEventListener("click", () => move(-1));
  on.addEventListener("click", () => move(1));
  slider.addEventListener("input", () => move(Number(slider.value) - step));
  place.addEventListener("keydown", (event) => {
    if (event.target.matches("select, input, .scroll") || event.altKey || event.ctrlKey || event.metaKey) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    move(by);
  });
  place.tabIndex = 0;
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", "Lattice browser: arrow keys step through the passes");
  place.append(
    make("div", { class: "controls" }, task, number, make("span", { class: "steps" }, back, slider, on), count, ...(data.lm ? [kind] : [])),
    notice, text, verdict, make("div", { class: "beside" }, make("div", { class: "lattice" }, grid, more), trees),
  );
  arrive();
  plots.started.then(() => follow() && place.scrollIntoView()); // again, when the plots above have their height
})();
