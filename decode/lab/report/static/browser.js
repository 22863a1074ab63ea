// The lattice browser: one pass of one sequence at a time, in the order of the tree's replay. Its controls hold its
// state, and so does the address: #lattices?task=..&sequence=..&position=.., with &tree=open, &ranks=all if selected.
function startBrowser(place, { sequences, words, lm }) {
  const parts = Object.fromEntries([...place.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));
  const names = lm ? { base: "base draft", best: "rescored draft" } : { base: "base draft" };
  const current = () => sequences[parts.number.value];
  const step = () => Number(parts.slider.value);

  const label = (token) => (words ? words[token] || "∅" : String(token));
  const percent = (value) => (value < 0.1 ? "<0.1%" : `${value.toFixed(value < 10 ? 1 : 0)}%`);

  // Running text, with blanks and line breaks as they are.
  function spelled(tokens) {
    if (!words) return `${tokens.join(" ")} `;
    const blanks = (dots) => " ".repeat(dots.length);
    return tokens.map((token) => words[token].replace(/^·+|·+$/g, blanks).replaceAll("↵", "↵\n")).join("");
  }

  function showText({ prompt, tokens }, { row, accepted }) {
    const end = row + 1 + accepted.tree;
    const [done, root, rest] = [tokens.slice(0, row), [tokens[row]], tokens.slice(end)];
    const pieces = { prompt, done, root, accepted: tokens.slice(row + 1, end), rest };
    parts.text.replaceChildren(
      ...Object.entries(pieces).map(([kind, piece]) => make("span", { class: kind }, spelled(piece))));
    parts.text.scrollTop = parts.text.querySelector(".root").offsetTop - parts.text.clientHeight / 2;
  }

  function showVerdict({ accepted, tree, open }) {
    const drafts = { ...names, tree: `tree of ${tree.length}`, ...(lm && { open: `open tree of ${open.length}` }) };
    parts.verdict.replaceChildren(...Object.entries(drafts).map(([key, name]) =>
      make("span", { class: `mark ${key}` }, `${name}: `, make("b", {}, accepted[key]), " accepted")));
  }

  function candidate(pass, slot, rank, truth) {
    const token = pass.ids[slot][rank];
    if (token === undefined || token < 0) return make("td");
    const isTrue = truth[slot] === token;
    const mark = (kind, name, sign) => make("span", { class: kind, role: "img", "aria-label": name }, sign);
    const drafts = Object.keys(names).filter((draft) => pass[draft][slot] === token);
    const marks = drafts.map((draft) => mark(`dot ${draft}`, names[draft], ""));
    if (isTrue) marks.unshift(mark("tick", "the true token", "✓"));
    const share = pass.p[slot][rank];
    const title = [label(token), ...marks.map((mark) => mark.getAttribute("aria-label"))].join(", ");
    return make("td", { class: isTrue ? "true" : "" },
      make("div", { class: "candidate", style: `--p: ${Math.min(100, share)}%`, title },
        make("div", {}, make("span", { class: "token" }, label(token)), ...marks),
        make("small", {}, percent(share), lm ? ` +${pass.lm[slot][rank].toFixed(1)}` : "")));
  }

  function showGrid(pass, truth) {
    const row = (name, cells) => make("tr", {}, make("th", { scope: "row" }, name), ...cells);
    const heads = pass.ids.map((_, slot) => make("th", { scope: "col" }, `head ${slot + 2}`));
    const truths = truth.map((token, slot) => {
      const rank = pass.ids[slot].indexOf(token);
      const where = rank < 0 ? "not in the lattice" : `rank ${rank + 1}`;
      return make("td", { class: "truth" }, label(token), make("small", {}, where));
    });
    const rows = Array.from({ length: Math.max(...pass.ids.map((ids) => ids.length)) }, (_, rank) =>
      row(rank + 1, pass.ids.map((_, slot) => candidate(pass, slot, rank, truth))));
    parts.grid.replaceChildren(
      make("table", {}, make("thead", {}, row("rank", heads), row("truth", truths)), make("tbody", {}, ...rows)));
  }

  // Nodes are [token, parent, percent]; children are right of their parent, under their head.
  function showTree(nodes, root, truth, ids) {
    const branch = (number, depth, kind, token, share) => {
      const chip = make("div", { class: `chip ${kind}`, title: `${label(token)} ${share}` });
      chip.append(make("span", { class: "token" }, label(token)), make("small", {}, share));
      const own = [...nodes.entries()].filter(([, [, parent]]) => parent === number);
      const children = own.map(([child, [next, , percentage]]) => {
        const accepted = /root|true/.test(kind) && next === truth[depth] ? "true" : "";
        const proposed = ids[depth]?.includes(next) ? "" : "proposed";
        return branch(child, depth + 1, `${accepted} ${proposed}`, next, percent(percentage));
      });
      return make("div", { class: `node ${kind}` }, chip, make("div", { class: "children" }, ...children));
    };
    parts.heads.replaceChildren(...ids.map((_, slot) => make("small", {}, `head ${slot + 2}`)));
    parts.tree.replaceChildren(branch(-1, 0, "root", root, ""));
  }

  function show() {
    const { passes, tokens } = current();
    const pass = passes[step()];
    parts.back.disabled = step() === 0;
    parts.on.disabled = step() >= passes.length - 1;
    parts.count.value = pass ? `pass ${step() + 2} of ${passes.length + 1}` : "the prompt's pass made the whole text";
    parts.pass.hidden = !pass;
    if (!pass) return;
    const truth = tokens.slice(pass.row + 1, pass.row + 1 + pass.ids.length);
    showText(current(), pass);
    showVerdict(pass);
    showGrid(pass, truth);
    parts.dashed.hidden = parts.kind.value !== "open";
    showTree(pass[parts.kind.value], tokens[pass.row], truth, pass.ids);
  }

  function choose(sequence, step = 0) {
    const own = sequences.filter((one) => one.task === sequence.task);
    parts.task.value = sequence.task;
    parts.number.replaceChildren(...own.map((one) => new Option(`sequence ${one.number}`, sequences.indexOf(one))));
    parts.number.value = sequences.indexOf(sequence);
    parts.slider.max = Math.max(0, sequence.passes.length - 1);
    parts.slider.value = step; // at least 0, at most the last
  }

  // Shows the state and writes it to the address, without an entry in the history for every step.
  function changed() {
    parts.notice.textContent = "";
    show();
    const { task, number, passes } = current();
    const state = new URLSearchParams({ task, sequence: number, position: passes[step()]?.row ?? 0 });
    if (parts.kind.value === "open") state.set("tree", "open");
    if (parts.ranks.checked) state.set("ranks", "all");
    history.replaceState(null, "", `#lattices?${state}`);
  }

  // Shows what the address names: the last pass at or before the position.
  function follow() {
    if (!location.hash.startsWith("#lattices?")) return;
    const state = new URLSearchParams(location.hash.slice("#lattices?".length));
    const [task, number] = [state.get("task"), state.get("sequence")];
    const named = sequences.find((one) => one.task === task && String(one.number) === number);
    parts.notice.textContent = named ? "" : `This page has no sequence ${number} of ${task}; this is another one.`;
    const sequence = named ?? current();
    choose(sequence, sequence.passes.findLastIndex((pass) => pass.row <= Number(state.get("position"))));
    parts.kind.value = state.get("tree") === "open" && lm ? "open" : "tree";
    parts.ranks.checked = state.get("ranks") === "all";
    show();
    place.scrollIntoView();
  }

  function move(by) {
    parts.slider.value = step() + by;
    changed();
  }

  place.addEventListener("input", ({ target }) => {
    if (target === parts.task) choose(sequences.find((one) => one.task === target.value));
    if (target === parts.number) choose(current());
    changed();
  });
  parts.back.addEventListener("click", () => move(-1));
  parts.on.addEventListener("click", () => move(1));
  place.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.target.matches("select, input, .scroll") || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(by);
  });
  addEventListener("hashchange", follow);
  plotsDrawn.then(follow); // again, when the plots above have their height

  for (const task of new Set(sequences.map((one) => one.task))) parts.task.append(new Option(task, task));
  choose(sequences[0]);
  show();
  follow();
}
if (lattices) startBrowser(document.getElementById("browser"), lattices);
