// Keeps one Plotly figure alive over refreshes: draws with Plotly.react, keeps the reader's zoom, sends the viewport and
// clicks back, and counts its own "updated N s ago". It draws nothing when the figure is unchanged.

const STATES = new WeakMap();
const CONFIG = {
  displaylogo: false,
  doubleClick: false,
  responsive: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "resetScale2d", "toggleSpikelines"],
};
const VIEWPORT_DELAY_MS = 200; // one message a gesture, not one a frame
const CSS = `
.blc { position: relative; width: 100%; color: var(--st-text-color); font-family: var(--st-font); }
.blc-plot { width: 100%; }
.blc-legend { display: flex; flex-wrap: wrap; gap: .15rem 1rem; font-size: .82rem; line-height: 1.5rem; margin-bottom: .2rem; }
.blc-legend:empty { display: none; }
.blc-legend span { display: inline-flex; align-items: center; gap: .4rem; white-space: nowrap; }
.blc-legend i { width: 12px; height: 12px; border-radius: 2px; display: inline-block; box-shadow: 0 0 0 1px rgba(128,132,142,.55); }
.blc-legend i.triangle { clip-path: polygon(0 15%, 100% 15%, 50% 90%); border-radius: 0; }
.blc-legend i.right, .blc-legend i.left { position: relative; border-radius: 0; clip-path: polygon(10% 0, 95% 50%, 10% 100%); }
.blc-legend i.left { clip-path: polygon(90% 0, 5% 50%, 90% 100%); }
.blc-legend i.right::after, .blc-legend i.left::after { content: ""; position: absolute; inset: 2px 3px 2px 2px; background: #fff; clip-path: polygon(10% 0, 95% 50%, 10% 100%); }
.blc-legend i.left::after { inset: 2px 2px 2px 3px; clip-path: polygon(90% 0, 5% 50%, 90% 100%); }
.blc-legend i.diamond { transform: rotate(45deg) scale(.75); }
.blc-plot .modebar-btn path { fill: var(--st-text-color) !important; opacity: .55; }
.blc-wait { position: absolute; inset: 0 0 1.6rem 0; display: grid; place-items: center; font-size: .85rem; opacity: .6; }
.blc-foot { display: flex; gap: .9rem; align-items: center; flex-wrap: wrap; font-size: .8rem; line-height: 1.6rem; min-height: 1.6rem; }
.blc-note { flex: 1 1 auto; opacity: .72; }
.blc-clock { opacity: .72; font-variant-numeric: tabular-nums; }
.blc button { font: inherit; color: var(--st-link-color); background: none; border: 0; padding: 0; cursor: pointer; text-decoration: underline; text-underline-offset: 2px; }
.blc button:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; border-radius: 2px; }
.blc button[hidden] { display: none; }
.blc-table { max-height: 18rem; overflow: auto; margin-top: .3rem; border: 1px solid var(--st-border-color); border-radius: .4rem; }
.blc-table table { border-collapse: collapse; width: 100%; font-size: .8rem; font-variant-numeric: tabular-nums; }
.blc-table th, .blc-table td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--st-border-color); white-space: nowrap; }
.blc-table th:first-child, .blc-table td:first-child { text-align: left; }
.blc-table thead th { position: sticky; top: 0; background: var(--st-secondary-background-color); font-weight: 600; }
`;

let library;
function plotly(url) {
  library ??= new Promise((resolve, reject) => {
    if (window.Plotly) return resolve();
    const script = document.createElement("script");
    script.src = new URL(url, window.location.origin).href;
    script.onload = resolve;
    script.onerror = () => { library = undefined; reject(new Error(`plotly.js did not load from ${url}`)); };
    document.head.appendChild(script);
  });
  return library;
}

function styles() {
  if (document.getElementById("blc-style")) return;
  const style = document.createElement("style");
  style.id = "blc-style";
  style.textContent = CSS;
  document.head.appendChild(style);
}

function mount(parent) {
  styles();
  const root = document.createElement("div");
  root.className = "blc";
  root.innerHTML = `<div class="blc-legend" aria-hidden="true"></div><div class="blc-plot" role="img"></div><div class="blc-wait">drawing …</div>
    <div class="blc-foot"><span class="blc-note"></span><button class="blc-follow" type="button" hidden></button>
    <span class="blc-clock"></span><button class="blc-toggle" type="button" aria-expanded="false">show as table</button></div>
    <div class="blc-table" hidden tabindex="0"></div>`;
  parent.append(root);
  const part = (name) => root.querySelector(`.blc-${name}`);
  const state = {
    root, plot: part("plot"), legend: part("legend"), wait: part("wait"), note: part("note"), clock: part("clock"), follow: part("follow"),
    toggle: part("toggle"), table: part("table"), ticks: 0, skew: Infinity, epoch: 0, ranges: {}, drawn: "",
  };
  state.timer = setInterval(() => showClock(state), 1000);
  state.resize = new ResizeObserver(() => draw(state));
  state.resize.observe(state.plot);
  state.toggle.onclick = () => {
    state.table.hidden = !state.table.hidden;
    state.toggle.setAttribute("aria-expanded", String(!state.table.hidden));
    state.toggle.textContent = state.table.hidden ? "show as table" : "hide table";
    showTable(state);
  };
  state.follow.onclick = () => resetView(state);
  state.plot.addEventListener("pointerdown", () => { state.dragging = true; }, true);
  state.release = () => { if (state.dragging) { state.dragging = false; setTimeout(() => draw(state), 0); } };
  window.addEventListener("pointerup", state.release);
  root.dataset.mount = String((window.__blcMounts = (window.__blcMounts || 0) + 1));
  return state;
}

function unmount(parent, state) {
  clearInterval(state.timer);
  clearTimeout(state.sending);
  state.resize.disconnect();
  window.removeEventListener("pointerup", state.release);
  if (window.Plotly) window.Plotly.purge(state.plot);
  state.root.remove();
  STATES.delete(parent);
}

function showClock(state) {
  const { as_of: asOf, frozen } = state.data || {};
  if (asOf == null) { state.clock.textContent = ""; return; }
  if (frozen) { state.clock.textContent = frozen; return; }
  const age = Math.max(0, Date.now() / 1000 - state.skew - asOf);
  const text = age < 90 ? `${Math.round(age)} s` : age < 5400 ? `${Math.round(age / 60)} min` : `${Math.round(age / 3600)} h`;
  state.clock.textContent = `updated ${text} ago`;
}

const css = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();

function isDark(colour) {
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = colour || "#fff";
  const hex = probe.fillStyle;
  if (!hex.startsWith("#")) return false;
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b < 128;
}

function bytesOf(z) {
  if (!z || !z.bdata || z.dtype !== "u1" || !z.shape) return null;
  const raw = Uint8Array.from(atob(z.bdata), (c) => c.charCodeAt(0));
  const [rows, columns] = String(z.shape).split(",").map(Number);
  return Array.from({ length: rows }, (_, i) => raw.subarray(i * columns, (i + 1) * columns));
}

// the row of each cell and, where codes have labels, what its code means; few different texts, however many cells
function cellTexts(z, names, labels) {
  const rows = labels && bytesOf(z);
  if (!rows) return names.map((name) => Array(Number(String(z.shape || "0,0").split(",")[1])).fill(name));
  return rows.map((row, i) => {
    const texts = labels.map((label) => `<b>${label}</b><br>${names[i]}`);
    return Array.from(row, (code) => texts[code]);
  });
}

// what Python leaves to the page: colours of its theme, and the words behind the codes of a raster
function themed(state) {
  const figure = JSON.parse(state.data.fig);
  const text = css(state.root, "--st-text-color");
  const line = css(state.root, "--st-border-color");
  const panel = css(state.root, "--st-secondary-background-color");
  const dark = isDark(css(state.root, "--st-background-color"));
  for (const trace of figure.data) {
    const { labels, rows: names, dark: swaps } = trace.meta || {};
    if (dark && swaps) for (const [key, value] of Object.entries(swaps)) {
      trace[key] = value && typeof value === "object" && !Array.isArray(value) ? { ...trace[key], ...value } : value;
    }
    if (names) trace.text = cellTexts(trace.z, names, labels);
  }
  const layout = figure.layout;
  layout.font = { size: 12, ...layout.font, color: text, family: css(state.root, "--st-font") || "sans-serif" };
  layout.paper_bgcolor = "rgba(0,0,0,0)";
  layout.plot_bgcolor ??= "rgba(0,0,0,0)";
  layout.hoverlabel = { bgcolor: panel, bordercolor: line, font: { color: text }, align: "left", ...layout.hoverlabel };
  for (const name of Object.keys(layout)) if (/^[xy]axis\d*$/.test(name)) {
    layout[name] = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line, ...layout[name] };
  }
  layout.modebar = { bgcolor: "rgba(0,0,0,0)", ...layout.modebar };
  layout.uirevision = `${layout.uirevision || "keep"}-${state.epoch}`;
  layout.width = state.plot.clientWidth;
  // uirevision keeps a zoom only while the figure asks for the same range, and a live window asks for another each time
  for (const [name, range] of Object.entries(state.ranges)) layout[name] = { ...layout[name], range, autorange: false };
  return figure;
}

function fingerprint(state) {
  const colours = ["--st-text-color", "--st-background-color"].map((name) => css(state.root, name)).join();
  return `${state.plot.clientWidth}|${colours}|${state.epoch}|${state.data.fig}`;
}

function showLegend(state) {
  const items = state.figure.layout.meta?.legend || [];
  const print = JSON.stringify(items);
  if (print === state.legendPrint) return;
  state.legendPrint = print;
  state.legend.replaceChildren(...items.map(({ name, colour, shape }) => {
    const item = document.createElement("span");
    const mark = document.createElement("i");
    mark.className = shape;
    mark.style.background = shape === "hatch" ? `repeating-linear-gradient(135deg, ${colour} 0 2px, transparent 2px 5px)` : colour;
    item.append(mark, name);
    return item;
  }));
}

// how much a pixel stands for, which only the page knows
function showNote(state) {
  const axis = state.plot._fullLayout?.xaxis;
  let scale = "";
  if (state.data.scale && axis?.type === "date" && axis._length > 0) {
    const [low, high] = axis.range.map((edge) => (typeof edge === "number" ? edge : Date.parse(`${edge.replace(" ", "T")}Z`)));
    const seconds = (high - low) / 1000 / axis._length;
    scale = `1 px = ${seconds < 1 ? `${+(seconds * 1000).toPrecision(2)} ms` : `${+seconds.toPrecision(2)} s`}`;
  }
  state.note.textContent = [scale, state.data.note].filter(Boolean).join(" · ");
}

async function draw(state) {
  // never under the reader's hand: a figure that arrives during a drag is drawn when the button is released
  if (!state.data || state.dragging || state.drawing || !state.plot.clientWidth) return;
  const print = fingerprint(state);
  if (print === state.drawn) return;
  state.drawing = true;
  try {
    await plotly(state.data.plotly);
    const begin = performance.now();
    const figure = themed(state);
    await window.Plotly.react(state.plot, figure.data, figure.layout, CONFIG);
    state.drawn = print;
    state.figure = figure;
    state.root.dataset.tick = String(++state.ticks);
    state.root.dataset.drawMs = (performance.now() - begin).toFixed(0);
    showLegend(state);
    showNote(state);
    state.wait.hidden = true;
    state.wait.style.display = "none";
    if (!state.listening) listen(state);
    if (!state.table.hidden) showTable(state);
  } catch (error) {
    state.wait.textContent = `the chart could not be drawn: ${error.message}`;
    state.drawn = print; // the same figure would fail again; a new one gets its chance
  } finally {
    state.drawing = false;
  }
  if (fingerprint(state) !== state.drawn) draw(state);
}

function listen(state) {
  state.listening = true;
  state.plot.on("plotly_relayout", (event) => {
    const axis = Object.keys(event).find((key) => /^xaxis\d*\.(range|autorange)/.test(key));
    if (!axis) return;
    if (axis.endsWith("autorange")) { resetView(state); return; }
    const full = state.plot._fullLayout;
    const axes = Object.keys(full).filter((key) => /^xaxis\d*$/.test(key));
    state.ranges = Object.fromEntries(axes.map((name) => [name, [...full[name].range]]));
    setViewport(state, state.ranges.xaxis);
    showNote(state);
  });
  state.plot.on("plotly_doubleclick", () => resetView(state));
  state.plot.on("plotly_click", ({ points }) => {
    if (!state.data.clicks || !points.length) return;
    const { x, y, curveNumber, customdata } = points[0];
    state.trigger("click", { x, y, curve: curveNumber, customdata: customdata ?? null });
  });
}

function setViewport(state, range) {
  state.root.dataset.zoomed = String(range !== null);
  state.root.dataset.viewport = range ? JSON.stringify(range) : "";
  state.follow.hidden = range === null;
  state.follow.textContent = state.data.follow || "reset zoom";
  if (!state.data.viewport) return;
  clearTimeout(state.sending);
  state.sending = setTimeout(() => state.set("viewport", range), VIEWPORT_DELAY_MS);
}

function resetView(state) {
  state.ranges = {};
  state.epoch += 1; // a new uirevision makes Plotly forget the reader's range and take the figure's
  setViewport(state, null);
  draw(state);
}

function tableOf(state) {
  if (state.data.table) return state.data.table;
  const series = (state.figure?.data || []).filter((t) => Array.isArray(t.x) && Array.isArray(t.y) && t.name && t.x[0] != null);
  const rows = new Map();
  series.forEach((trace, column) => trace.x.forEach((x, i) => {
    if (!rows.has(x)) rows.set(x, Array(series.length).fill(null));
    rows.get(x)[column] = trace.y[i];
  }));
  const first = state.figure?.layout?.meta?.index || "x";
  return { columns: [first, ...series.map((t) => t.name)], rows: [...rows].sort((a, b) => b[0] - a[0]).map(([x, y]) => [x, ...y]) };
}

function showTable(state) {
  if (state.table.hidden) return;
  const { columns, rows } = tableOf(state);
  const cell = (tag, value) => {
    const element = document.createElement(tag);
    element.textContent = value == null ? "–" : typeof value === "number" ? String(+value.toPrecision(6)) : value;
    return element;
  };
  const line = (tag, values) => { const tr = document.createElement("tr"); tr.append(...values.map((v) => cell(tag, v))); return tr; };
  const table = document.createElement("table");
  const head = document.createElement("thead");
  const body = document.createElement("tbody");
  head.append(line("th", columns));
  body.append(...rows.map((row) => line("td", row)));
  table.append(head, body);
  state.table.replaceChildren(table);
}

export default function host({ data, parentElement, setStateValue, setTriggerValue }) {
  let state = STATES.get(parentElement);
  if (!state) STATES.set(parentElement, (state = mount(parentElement)));
  state.data = data;
  state.set = setStateValue;
  state.trigger = setTriggerValue;
  // the least difference seen is the clocks' difference; the rest is the way here
  if (data.sent_at != null) state.skew = Math.min(state.skew, Date.now() / 1000 - data.sent_at);
  state.root.dataset.asOf = data.as_of ?? "";
  state.plot.style.minHeight = `${data.height}px`;
  state.plot.setAttribute("aria-label", data.label);
  showNote(state);
  showClock(state);
  draw(state);
  return () => unmount(parentElement, state);
}
