// The explorer: one function for the report page and the notebook widget. Data comes from `idgraph.viz.explorer.data`;
// every text is set as text, never as markup. dagre places boxes, d3-zoom pans and zooms (both in vendor.js).
function idgraphExplorer(root, data) {
  "use strict";
  const { Graph, layout, select, zoom, zoomIdentity } = idgraphVendor;
  const SVG = "http://www.w3.org/2000/svg";
  const CELL = 7.25, ROW = 16, PAD = 9, MOST = 40, ACROSS = 10, NARROW = 22; // pixels of a character and a line; boxes unfolded at first, and in one row without edges; characters below a title in a wide view
  const ops = new Map(data.ops.map((o) => [o.name, o])), inputs = new Map(data.inputs.map((o) => [o.name, o]));
  const state = { view: 0, open: new Map(), op: null, box: null, tab: "operation", step: data.steps.length, pass: 0, found: [] };

  function html(name, attributes, ...children) {
    const e = document.createElement(name);
    for (const [k, v] of Object.entries(attributes || {})) {
      if (k.startsWith("on")) e.addEventListener(k.slice(2), v); else if (v !== null && v !== undefined) e.setAttribute(k, v);
    }
    e.append(...children.filter((c) => c !== null && c !== undefined));
    return e;
  }
  function svg(name, attributes, text) {
    const e = document.createElementNS(SVG, name);
    for (const [k, v] of Object.entries(attributes || {})) if (v !== null && v !== undefined) e.setAttribute(k, v);
    if (text !== undefined) e.textContent = text;
    return e;
  }
  const button = (text, action, title) => html("button", { type: "button", title, onclick: action }, text);

  // the folded graph of a view ---------------------------------------------------------------------------------------
  function indexed(view) {
    if (!view.parents) {
      view.parents = new Map();
      for (const f of view.folds) view.parents.set(f.id, f.parent);
      for (const b of view.boxes) view.parents.set(b.id, b.parent);
      view.byId = new Map([...view.folds, ...view.boxes].map((x) => [x.id, x]));
      view.size = new Map();
      for (const b of view.boxes) for (let p = b.parent; p; p = view.parents.get(p)) view.size.set(p, (view.size.get(p) || 0) + 1);
      const children = new Map(), depth = (f) => { let n = 0; for (let p = f.parent; p; p = view.parents.get(p)) n++; return n; };
      for (const x of view.byId.values()) children.set(x.parent, (children.get(x.parent) || 0) + 1);
      let count = children.get(null) || 0; // what is seen at first: as many branches open, outer ones first, as stay legible
      view.first = new Set();
      for (const f of [...view.folds].sort((a, b) => depth(a) - depth(b))) {
        const more = (children.get(f.id) || 0) - 1;
        if (count + more > MOST || (f.parent && !view.first.has(f.parent))) continue;
        count += more;
        view.first.add(f.id);
      }
    }
    return view;
  }
  function isOpen(view, fold) {
    const asked = state.open.get(view.id + "/" + fold);
    return asked === undefined ? view.first.has(fold) : asked;
  }
  function setOpen(view, fold, open) { state.open.set(view.id + "/" + fold, open); }
  function shownAs(view, id) {
    let top = id;
    for (let p = view.parents.get(id); p; p = view.parents.get(p)) if (!isOpen(view, p)) top = p;
    return top;
  }
  function reveal(view, id) { for (let p = view.parents.get(id); p; p = view.parents.get(p)) setOpen(view, p, true); }
  const opBox = (view, name) => view.boxes.find((b) => b.op === name && b.main) || view.boxes.find((b) => b.op === name);

  // the schedule up to a step: loops of each tensor, as the slider has it -------------------------------------------
  const stepped = () => (state.tab === "schedule" ? state.step : data.steps.length);
  function loopsAt(step) {
    const now = new Map(data.loops);
    for (const x of data.steps.slice(0, step)) now.set(x.tensor, x.after);
    return now;
  }
  function atStep(box, now) { // a box of the operations with the loops that it has at this step
    if (!now || !now.has(box.id)) return box.lines;
    const axes = now.get(box.id), text = axes.length > 44 ? axes.slice(0, 43) + "\u2026" : axes;
    const inlined = (axes.match(/, inlined at \d+$/) || [""])[0];
    const plain = box.lines.filter((l) => !l[0].startsWith("loops ")).map((l) => [l[0].replace(/, inlined at \d+$/, "") + (l === box.lines[box.lines.length - 1] ? inlined : ""), ...l.slice(1)]);
    return [...plain.slice(0, -1), ["loops " + text, "faint"], plain[plain.length - 1]];
  }

  function visible(view) {
    const now = state.view === 0 && stepped() < data.steps.length ? loopsAt(stepped()) : null;
    const inlined = now ? new Set([...now].filter(([, axes]) => / inlined at \d+$/.test(axes)).map(([t]) => t)) : null;
    const boxes = new Map(), frames = new Map();
    const within = (id) => { const p = view.parents.get(id); return p && isOpen(view, p) ? p : null; };
    for (const b of view.boxes) {
      const id = shownAs(view, b.id);
      if (boxes.has(id)) continue;
      const x = view.byId.get(id);
      const lines = id === b.id ? atStep(x, now) : [...x.lines, ["+ " + view.size.get(id) + " boxes", "faint"]];
      boxes.set(id, { ...x, lines, folded: id !== b.id });
      for (let p = within(id); p; p = view.parents.get(p)) frames.set(p, view.byId.get(p));
    }
    const edges = new Map();
    for (const e of view.edges) {
      const a = shownAs(view, e.a), b = shownAs(view, e.b);
      if (a === b || !boxes.has(a) || !boxes.has(b)) continue;
      const key = a + "\u0000" + b, old = edges.get(key), shared = inlined !== null && inlined.has(e.a);
      if (old) { old.marked = old.marked || e.marked; old.shared = old.shared || shared; } else edges.set(key, { ...e, a, b, shared });
    }
    return { boxes, frames, edges: [...edges.values()] };
  }

  function place(view, shown) {
    const g = new Graph({ compound: true });
    g.setGraph({ rankdir: "TB", nodesep: 18, ranksep: shown.frames.size ? 46 : 34, edgesep: 8, marginx: 16, marginy: shown.frames.size ? 90 : 16 });
    g.setDefaultEdgeLabel(() => ({}));
    for (const [id, f] of shown.frames) g.setNode(id, { paddingTop: 10 + ROW * f.lines.length });
    const joined = new Set(shown.edges.flatMap((e) => [e.a, e.b])), alone = [];
    for (const [id, b] of shown.boxes) {
      const cells = Math.max(4, ...b.lines.map((l) => (view.narrow && l[1] !== "head" && !(l[2] || []).length ? Math.min(NARROW, l[0].length) : [...l[0]].length + 2 * (l[2] ? l[2].length : 0))));
      const n = { width: cells * CELL + 2 * PAD, height: b.lines.length * ROW + PAD };
      if (joined.has(id) || shown.frames.has(view.parents.get(id))) g.setNode(id, n); else alone.push([id, n]);
    }
    if (alone.length <= ACROSS) for (const [id, n] of alone.splice(0)) g.setNode(id, n);
    for (const id of [...shown.frames.keys(), ...shown.boxes.keys()]) {
      const p = view.parents.get(id);
      if (p && shown.frames.has(p)) g.setParent(id, p);
    }
    for (const e of shown.edges) g.setEdge(e.a, e.b);
    if (g.nodeCount()) layout(g); else Object.assign(g.graph(), { width: 0, height: 0 });
    const size = g.graph(), area = alone.reduce((sum, [, n]) => sum + (n.width + 18) * (n.height + 18), 0);
    const width = Math.max(size.width, Math.sqrt(1.6 * area)); // boxes that nothing joins: in rows below the others
    let x = 16, y = size.height + 16, tall = 0;
    for (const [id, n] of alone) {
      if (x > 16 && x + n.width > width) { x = 16; y += tall + 18; tall = 0; }
      g.setNode(id, { ...n, x: x + n.width / 2, y: y + n.height / 2 });
      x += n.width + 18;
      tall = Math.max(tall, n.height);
      size.width = Math.max(size.width, x);
      size.height = y + tall + 16;
    }
    return g;
  }

  // drawing ----------------------------------------------------------------------------------------------------------
  const canvas = html("div", { class: "ig-canvas" }), side = html("div", { class: "ig-side" });
  const picture = svg("svg", { role: "img", "aria-label": data.name }), world = svg("g"), caption = html("div", { class: "ig-caption" });
  const marker = svg("marker", { id: "ig-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
  marker.append(svg("path", { d: "M0,0 L8,4 L0,8 z", fill: "context-stroke" }));
  const defs = svg("defs");
  defs.append(marker);
  picture.append(defs, world);
  const map = svg("svg", { class: "ig-map", "aria-hidden": "true" }), seen = svg("rect", { class: "ig-seen" });
  canvas.append(picture, caption, map);
  const pan = zoom().scaleExtent([0.005, 3]).on("zoom", (event) => { world.setAttribute("transform", event.transform.toString()); mapSeen(event.transform); });
  select(picture).call(pan).on("dblclick.zoom", null);
  let graph = null, shown = null, drawn = null, extent = null; // `extent`: all that is drawn, frames and titles too

  // the minimap: all boxes without their text, and the part that is in view -----------------------------------------
  function drawMap() {
    const g = graph.graph();
    map.setAttribute("viewBox", "0 0 " + g.width + " " + g.height);
    map.replaceChildren(...[...shown.boxes].map(([id, b]) => {
      const n = graph.node(id), r = svg("rect", { x: n.x - n.width / 2, y: n.y - n.height / 2, width: n.width, height: n.height, "data-map": id });
      r.style.setProperty("fill", b.stroke);
      return r;
    }), seen);
  }
  function mapSeen(t) {
    const w = canvas.clientWidth, h = canvas.clientHeight;
    if (!graph || !w) return;
    const x = -t.x / t.k, y = -t.y / t.k;
    for (const [k, v] of Object.entries({ x, y, width: w / t.k, height: h / t.k })) seen.setAttribute(k, v);
    const all = x <= extent.x && y <= extent.y && x + w / t.k >= extent.x + extent.width && y + h / t.k >= extent.y + extent.height; // then the map says nothing
    map.classList.toggle("ig-idle", all);
  }
  function mapTo(event) { // the point under the pointer to the middle of the canvas
    const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    select(picture).call(pan.translateTo, p.x, p.y);
  }
  map.addEventListener("pointerdown", (event) => { event.stopPropagation(); map.setPointerCapture(event.pointerId); mapTo(event); });
  map.addEventListener("pointermove", (event) => { if (event.buttons) mapTo(event); });

  function smooth(points) {
    if (points.length < 3) return "M" + points.map((p) => p.x + "," + p.y).join("L");
    let d = "M" + points[0].x + "," + points[0].y;
    for (let i = 1; i < points.length - 1; i++) {
      const p = points[i], q = points[i + 1], last = i === points.length - 2;
      d += "Q" + p.x + "," + p.y + " " + (last ? q.x : (p.x + q.x) / 2) + "," + (last ? q.y : (p.y + q.y) / 2);
    }
    return d;
  }
  function write(group, lines, x, y, middle, width) {
    lines.forEach((l, i) => {
      const chips = l[2] || [], most = width ? Math.max(4, Math.floor(width / CELL + 0.01)) : Infinity;
      const text = l[0].length > most ? l[0].slice(0, most - 1) + "\u2026" : l[0];
      chips.forEach((c, k) => group.append(svg("rect", { x: x + k * 14, y: y + i * ROW - 10, width: 11, height: 11, fill: c[0], stroke: c[1] })));
      group.append(svg("text", { x: x + chips.length * 14, y: y + i * ROW, class: l[1] === "head" ? "ig-head" : l[1] === "plain" ? null : "ig-faint", "text-anchor": middle ? "middle" : null }, text));
    });
  }
  function draw() {
    const view = indexed(data.views[state.view]);
    shown = visible(view);
    graph = place(view, shown);
    drawn = stepped();
    world.replaceChildren();
    const depth = (id) => { let n = 0; for (let p = view.parents.get(id); p; p = view.parents.get(p)) n++; return n; };
    const head = new Map(); // the height of the titles of a frame and of those inside it
    for (const [id, f] of [...shown.frames].sort((a, b) => depth(b[0]) - depth(a[0]))) {
      head.set(id, (head.get(id) || 0) + 8 + ROW * f.lines.length);
      const p = view.parents.get(id);
      if (p) head.set(p, Math.max(head.get(p) || 0, head.get(id)));
    }
    const titles = []; // they come above the edges
    for (const [id, f] of [...shown.frames].sort((a, b) => depth(a[0]) - depth(b[0]))) {
      const n = graph.node(id), top = head.get(id), g = svg("g", { class: "ig-frame" + (f.marked ? " ig-marked" : ""), "data-id": id });
      g.append(svg("rect", { x: n.x - n.width / 2, y: n.y - n.height / 2 - top, width: n.width, height: n.height + top, rx: 7 }));
      const name = svg("g", { class: "ig-name", "data-id": id }), fold = (event) => { event.stopPropagation(); setOpen(view, id, false); draw(); if (f.op) choose(f.op, id); else mark(); };
      write(name, f.lines, n.x - n.width / 2 + 8, n.y - n.height / 2 - top + 16, false, n.width - 16);
      titles.push(name);
      for (const x of [g, name]) { x.append(svg("title", {}, f.title || "")); x.addEventListener("click", fold); }
      world.append(g);
    }
    for (const e of shown.edges) {
      const points = graph.edge(e.a, e.b).points;
      const path = svg("path", { d: smooth(points), class: "ig-edge" + (e.marked ? " ig-hot" : "") + (e.shared ? " ig-shared" : "") + (e.dashed ? " ig-dashed" : ""), "data-a": e.a, "data-b": e.b,
        stroke: e.marked ? "var(--x-hot)" : e.colour || "var(--x-edge)", "marker-end": e.link ? null : "url(#ig-arrow)" });
      path.append(svg("title", {}, e.title || ""));
      world.append(path);
    }
    world.append(...titles);
    for (const [id, b] of shown.boxes) {
      const n = graph.node(id);
      const g = svg("g", { class: "ig-box" + (b.thick ? " ig-thick" : "") + (b.dashed ? " ig-dashed" : "") + (b.marked ? " ig-marked" : ""), "data-id": id, "data-op": b.op || null, tabindex: 0 });
      const outline = svg("rect", { x: n.x - n.width / 2, y: n.y - n.height / 2, width: n.width, height: n.height, rx: b.shape === "pill" ? n.height / 2 : 5, stroke: b.stroke });
      outline.style.setProperty("--x-fill", b.fill); // the style sheet darkens it at night
      g.append(outline);
      write(g, b.lines, n.x - n.width / 2 + PAD, n.y - n.height / 2 + ROW - 1, false, view.narrow ? n.width - 2 * PAD : 0);
      g.append(svg("title", {}, b.title || ""));
      const act = () => { if (b.folded) { setOpen(view, id, true); draw(); centre(id); mark(); } else choose(b.op, id); };
      g.addEventListener("click", (event) => { event.stopPropagation(); act(); });
      g.addEventListener("keydown", (event) => { if (event.key === "Enter") act(); });
      world.append(g);
    }
    extent = canvas.clientWidth ? world.getBBox() : { x: 0, y: 0, ...graph.graph() };
    drawMap();
    caption.replaceChildren(...view.alarm.map((t) => html("div", { class: "ig-alarm" }, t)), ...view.caption.map((t) => html("div", {}, t)));
    map.style.bottom = caption.offsetHeight + 8 + "px";
  }
  function fit(least) { // all in view; with `least`, at that scale at least: then around the cycle that is marked, else around the first operation
    const w = canvas.clientWidth || 900, h = (canvas.clientHeight || 600) - caption.offsetHeight;
    const b = extent, k = Math.max(Math.min((w - 16) / b.width, (h - 16) / b.height, 1.4), least || 0);
    const boxes = [...shown.boxes.values()], view = data.views[state.view], op = data.ops.length ? opBox(view, data.ops[0].name) : null;
    const first = boxes.find((x) => x.marked) || shown.boxes.get(op && shownAs(view, op.id)) || boxes[0];
    const near = first ? graph.node(first.id) : { x: 0, y: 0 };
    const from = (size, start, length, at) => (length * k <= size ? (size - length * k) / 2 - start * k : Math.min(8 - start * k, Math.max(size - 8 - (start + length) * k, size / 2 - at * k)));
    select(picture).call(pan.transform, zoomIdentity.translate(from(w, b.x, b.width, near.x), from(h, b.y, b.height, near.y)).scale(k));
  }
  function begin() { // a view as it opens: where it is too wide to read, boxes get narrow, then nests are folded, the last and innermost first, but not the only one
    draw();
    const view = data.views[state.view], w = canvas.clientWidth;
    if (w && !view.narrow && (w - 16) / extent.width < LEGIBLE) { view.narrow = true; draw(); }
    const nests = [...view.first].filter((id) => !view.byId.get(id).op), alone = nests.length === 1;
    while (w && !alone && nests.length && (w - 16) / extent.width < LEGIBLE) { view.first.delete(nests.pop()); draw(); }
    fit(LEGIBLE);
  }
  function centre(id) {
    const n = graph.hasNode(id) ? graph.node(id) : null;
    if (!n) return;
    const w = canvas.clientWidth || 900, h = canvas.clientHeight || 600;
    select(picture).call(pan.transform, zoomIdentity.translate(w / 2 - n.x, h / 2 - n.y));
  }

  // one thing chosen, everywhere --------------------------------------------------------------------------------------
  function mark() {
    const view = data.views[state.view], found = new Set(state.found.map((n) => { const b = opBox(view, n); return b && shownAs(view, b.id); }));
    const mine = new Set();
    world.querySelectorAll(".ig-box, .ig-frame").forEach((g) => {
      const id = g.getAttribute("data-id"), x = view.byId.get(id);
      const on = state.op !== null && (x.op === state.op ? (state.box === null || state.box === id || x.main) : shownAs(view, (opBox(view, state.op) || {}).id) === id);
      if (on) mine.add(id);
      g.classList.toggle("ig-on", on);
      g.classList.toggle("ig-match", found.has(id) && !on);
    });
    world.querySelectorAll(".ig-edge").forEach((p) => p.classList.toggle("ig-away", mine.size > 0 && !mine.has(p.getAttribute("data-a")) && !mine.has(p.getAttribute("data-b"))));
  }
  function choose(name, box) {
    state.op = name || null;
    state.box = box || null;
    if (state.tab === "schedule" || state.tab === "passes") state.tab = "operation";
    mark();
    panel();
  }
  function readLink() { // #view=index+graph&op=t6&tab=kernel: the state that a page's address has
    const p = new URLSearchParams(location.hash.slice(1)), view = data.views.findIndex((v) => v.id === p.get("view"));
    state.view = Math.max(0, view);
    views.value = state.view;
    const name = p.get("op");
    state.tab = TABS.includes(p.get("tab")) ? p.get("tab") : "operation";
    begin();
    state.op = state.box = null;
    const b = ops.has(name) || inputs.has(name) ? opBox(data.views[state.view], name) : null;
    if (b) { state.op = name; state.box = b.id; reveal(data.views[state.view], b.id); draw(); centre(b.id); }
    mark();
    panel();
  }
  function writeLink() {
    if (!linked) return;
    const p = new URLSearchParams();
    if (state.view) p.set("view", data.views[state.view].id);
    if (state.op !== null) p.set("op", state.op);
    if (state.tab !== "operation") p.set("tab", state.tab);
    history.replaceState(null, "", p.size ? "#" + p : location.pathname + location.search);
  }
  function go(name) {
    const view = indexed(data.views[state.view]), b = opBox(view, name);
    if (b) { reveal(view, b.id); draw(); centre(b.id); }
    choose(name, b ? b.id : null);
  }
  const link = (name) => html("a", { onclick: () => go(name) }, name);

  const LEGIBLE = 0.6, TABS = ["operation", "kernel", "source", "schedule", "passes"].filter((t) => t === "operation" || (t === "kernel" && data.kernels.length) || (t === "source" && data.lines.length) || (t === "schedule" && data.steps.length) || (t === "passes" && data.passes.length));
  const linked = root.hasAttribute("data-links"); // one explorer that has the page, and its address, to itself

  // the panel ---------------------------------------------------------------------------------------------------------
  function tabs() {
    return html("div", { class: "ig-tabs", role: "tablist" }, ...TABS.map((t) => { const b = button(t, () => { state.tab = t; panel(); }); b.setAttribute("aria-pressed", String(t === state.tab)); b.setAttribute("data-tab", t); return b; }));
  }
  function rowsOf(pairs) { return html("table", {}, ...pairs.filter((p) => p[1] !== "" && p[1] !== null).map(([k, v]) => html("tr", {}, html("th", {}, k), html("td", {}, v)))); }
  function names(list, known) { const out = html("span", {}); list.forEach((n, i) => out.append(i ? ", " : "", known(n) ? link(n) : n)); return out; }
  function input(o) { return [html("h4", { class: "ig-mono" }, o.text), rowsOf([["read by", names(o.readers, () => true)]])]; }
  function summary() { // what a page opens with
    return [html("h4", {}, data.name), html("table", { class: "ig-summary" }, ...data.summary.map(([k, v]) => html("tr", {}, html("th", {}, k), html("td", {}, v)))),
      html("p", {}, "Click a box, a kernel line or a line of the program; a folded box opens. Drag to pan, wheel to zoom.")];
  }
  function operation() {
    const o = ops.get(state.op);
    if (inputs.has(state.op)) return input(inputs.get(state.op));
    if (!o) return summary();
    const line = o.line === null ? null : data.lines[o.line];
    const at = line ? html("a", { onclick: () => { state.tab = "source"; panel(); } }, line.file + ":" + line.line + (line.code ? "  " + line.code : "")) : "";
    const where = o.kernel.length ? html("a", { onclick: () => { state.tab = "kernel"; panel(); } }, o.kernel.length + " lines of " + [...new Set(o.kernel.map((x) => data.kernels[x[0]].name))].join(", ")) : "";
    const reads = names(o.reads, (n) => ops.has(n) || inputs.has(n)), readers = names(o.readers, () => true);
    const out = [html("h4", { class: "ig-mono" }, o.text), rowsOf([["line", at], ["kernel", where], ["loops", o.loops], ["reads", reads], ["read by", readers]])];
    for (const a of o.accesses) out.push(html("h4", {}, a.title), rowsOf(a.rows));
    return out;
  }
  const TOKEN = /(^\s*\/\/.*$|#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(def|for|in|if|else|elif|while|return|range|and|or|not|with|import|from|as|True|False|None|lambda|class|parallel|unroll|block|thread)\b|\b(\d[\w.]*)|\b([A-Za-z_]\w*)(?=\()/g;
  const KINDS = ["comment", "string", "keyword", "number", "call"];
  function coloured(text) { // pieces of one line of Python or of a kernel's text; a numbered line of source is not a number
    const out = [];
    let end = 0;
    for (const m of text.matchAll(TOKEN)) {
      const kind = m.slice(1).findIndex((x) => x !== undefined);
      out.push(text.slice(end, m.index), html("span", { class: "ig-" + KINDS[kind] }, m[0]));
      end = m.index + m[0].length;
    }
    return [...out, text.slice(end)];
  }
  function code(lines, on, pick, added, numbers) {
    return html("div", { class: "ig-code" }, ...lines.map((t, i) => html("div", { class: (on(i) ? "ig-on" : "") + (added && added(i) ? " ig-added" : "") || null, onclick: () => pick(i) },
      numbers ? html("span", { class: "ig-number-of" }, String(numbers[i]).padStart(4) + "  ") : null, ...(t ? coloured(t) : [" "]))));
  }
  function kernel() {
    return data.kernels.flatMap((k, n) => [html("h4", {}, k.name), code(k.text, (i) => k.ops[i].includes(state.op), (i) => { if (k.ops[i].length) { state.tab = "kernel"; go(k.ops[i][0]); state.tab = "kernel"; panel(); } })]);
  }
  function source() {
    const o = ops.get(state.op);
    return data.sources.flatMap((part) => [html("h4", {}, part.file),
      code(part.text, (i) => Boolean(o) && part.own[i] !== null && o.line === part.own[i], (i) => { const first = data.ops.find((x) => part.own[i] !== null && x.line === part.own[i]); if (first) { go(first.name); state.tab = "source"; panel(); } }, null, part.text.map((_, i) => part.first + i))]);
  }
  function schedule() {
    const slide = html("input", { type: "range", min: 0, max: data.steps.length, value: state.step, "aria-label": "schedule step", oninput: (e) => { state.step = Number(e.target.value); show(); follow(); } });
    const below = html("div", {});
    function follow() { // the graph goes along: loops in its boxes, shared ones in blue, the tensor of this step in the middle
      const s = state.step ? data.steps[state.step - 1] : null, view = indexed(data.views[state.view]), b = s && opBox(view, s.tensor);
      state.op = b ? s.tensor : null;
      state.box = null;
      draw();
      if (b) centre(shownAs(view, b.id));
      mark();
    }
    function show() {
      const now = loopsAt(state.step), s = state.step ? data.steps[state.step - 1] : null;
      const wanted = [...now].filter(([t]) => data.ops.length <= 60 || t === state.op || (s && t === s.tensor));
      below.replaceChildren(html("p", {}, state.step + " of " + data.steps.length + (s ? ": " : ", unscheduled"), s ? html("span", { class: "ig-mono" }, s.tensor + "." + s.text) : null),
        s ? rowsOf([["before", s.before], ["after", s.after]]) : html("span", {}), html("h4", {}, "loops after this step"),
        html("table", {}, ...wanted.map(([t, axes]) => html("tr", { class: s && s.tensor === t ? "ig-on" : null }, html("th", {}, ops.has(t) ? link(t) : t), html("td", {}, axes)))));
    }
    show();
    return [slide, below];
  }
  const textAt = (n) => data.passes[n].kernels.flatMap((k) => data.texts[k]); // all kernels after a pass
  function passes() {
    const slide = html("input", { type: "range", min: 0, max: data.passes.length - 1, value: state.pass, "aria-label": "pass", oninput: (e) => { state.pass = Number(e.target.value); show(); } });
    const below = html("div", {});
    function show() {
      const p = data.passes[state.pass], text = textAt(state.pass), old = new Set(textAt(Math.max(0, state.pass - 1)));
      below.replaceChildren(html("p", {}, "kernels after " + p.name + (state.pass ? "; new lines are green" : "")), code(text, () => false, () => {}, (i) => !old.has(text[i])));
    }
    show();
    return [slide, below];
  }
  function panel() {
    const pane = html("div", { class: "ig-pane" });
    pane.append(...{ operation, kernel, source, schedule, passes }[state.tab]());
    side.replaceChildren(tabs(), hits, pane);
    if (drawn !== stepped()) { draw(); mark(); } // to or from an earlier step of the schedule
    writeLink();
    const on = pane.querySelector(".ig-on");
    if (on && on.scrollIntoView && pane.scrollHeight > pane.clientHeight) pane.scrollTop = Math.max(0, on.offsetTop - pane.offsetTop - 80);
  }

  // the bar -----------------------------------------------------------------------------------------------------------
  const views = html("select", { "aria-label": "view", onchange: (e) => { state.view = Number(e.target.value); begin(); mark(); writeLink(); } }, ...data.views.map((v, i) => html("option", { value: i }, v.title)));
  const found = html("span", { class: "ig-found", "aria-live": "polite" });
  const hits = html("div", { class: "ig-hits", role: "listbox", "aria-label": "found", hidden: "" });
  const search = html("input", { type: "search", placeholder: "tensor, operation, code", "aria-label": "search", oninput: () => look(), onkeydown: (e) => { if (e.key === "Enter") step(e.shiftKey ? -1 : 1); } });
  let at = -1;
  function look() { // names first: the whole name, its beginning, a part of it; then operations of that name, then what the text and the line say
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean), text = wanted.join(" ");
    const rank = (o) => { const n = o.name.toLowerCase(); return n === text ? 0 : n.startsWith(text) ? 1 : n.includes(text) ? 2 : o.op === text ? 3 : 4; };
    const said = (o) => (o.text + " " + (o.line === null || o.line === undefined ? "" : data.lines[o.line].code)).toLowerCase();
    at = -1;
    state.found = !wanted.length ? [] : [...data.inputs, ...data.ops].filter((o) => { const t = o.name.toLowerCase() + " " + said(o); return wanted.every((w) => t.includes(w)); }).map((o, i) => [rank(o), i, o.name]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((x) => x[2]);
    found.textContent = wanted.length ? state.found.length + " found" : "";
    hits.hidden = !state.found.length;
    hits.replaceChildren(...state.found.map((n, i) => html("div", { role: "option", tabindex: 0, onclick: () => visit(i), onkeydown: (e) => { if (e.key === "Enter") visit(i); } }, (ops.get(n) || inputs.get(n)).text)));
    mark();
  }
  function visit(i) {
    at = i;
    found.textContent = at + 1 + " of " + state.found.length;
    go(state.found[at]);
    [...hits.children].forEach((x, k) => { x.classList.toggle("ig-on", k === at); x.setAttribute("aria-selected", String(k === at)); });
    hits.scrollTop = Math.max(0, hits.children[at].offsetTop - hits.offsetTop - 40);
  }
  function step(by) { const n = state.found.length; if (n) visit(at < 0 ? (by > 0 ? 0 : n - 1) : (at + by + n) % n); }
  function all(open) { const v = indexed(data.views[state.view]); for (const f of v.folds) setOpen(v, f.id, open); draw(); fit(LEGIBLE); mark(); }
  const bar = html("div", { class: "ig-bar" }, views, search, button("previous", () => step(-1), "the one found before (Shift+Enter)"), button("next", () => step(1), "the next one found (Enter)"), found, html("span", { class: "ig-gap" }),
    button("unfold all", () => all(true)), button("fold all", () => all(false)), button("+", () => select(picture).call(pan.scaleBy, 1.3), "zoom in"), button("\u2212", () => select(picture).call(pan.scaleBy, 1 / 1.3), "zoom out"), button("fit", () => fit(), "all of it in view"));
  picture.addEventListener("click", () => choose(null, null));
  root.classList.add("ig-explorer");
  root.replaceChildren(bar, canvas, side);
  if (linked) { readLink(); window.addEventListener("hashchange", readLink); } else { begin(); panel(); }
  if (!canvas.clientWidth && typeof ResizeObserver !== "undefined") {
    const sized = new ResizeObserver(() => { if (canvas.clientWidth) { sized.disconnect(); begin(); mark(); } });
    sized.observe(canvas);
  }
}
