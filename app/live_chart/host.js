// Keeps one Plotly figure alive over refreshes: draws with Plotly.react, keeps the reader's zoom, sends the viewport and
// clicks back, and counts its own "updated N s ago". It draws nothing when the figure is unchanged.

import { HINT, SHORTCUTS, leave, onKey } from "./keys.js";
import { fingerprint, styles, themed } from "./look.js";
import { unpacked } from "./packed.js";
import { fillTable } from "./table.js";

const STATES = new WeakMap();
const CONFIG = {
  displaylogo: false,
  doubleClick: false,
  responsive: false,
  plotlyServerURL: "", // nothing leaves this machine: plotly.js would offer to send the chart to its makers
  // a picture of the plot alone would lack its title and its legend: "save" makes one with them
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "resetScale2d", "toggleSpikelines", "toImage", "sendChartToCloud"],
};
const LABELLED_PX = 100; // the buttons are narrower
const VIEWPORT_DELAY_MS = 200; // one message a gesture, not one a frame
const CLOCK_STEP_S = 5;
const FORMATS = ["png", "svg", "html", "csv"];

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

// one chart a frame while a page opens: the first is seen before the next one is drawn
let turn = Promise.resolve();
const frame = () => new Promise((seen) => { setTimeout(seen, 50); requestAnimationFrame(() => setTimeout(seen)); });
function myTurn() {
  const mine = turn;
  turn = mine.then(frame);
  return mine;
}

// plotly.js takes the browser long to load: what stands above a chart and is still on its way, such as the table that a
// page is for, comes first, for a while
const ABOVE_MS = 800;
const ON_ITS_WAY = "[data-testid=stSkeleton], [data-testid=stDataFrame]";
async function afterAbove(state) {
  const until = performance.now() + ABOVE_MS;
  const waits = (part) => !part.querySelector("canvas")?.clientHeight
    && part.compareDocumentPosition(state.root) & Node.DOCUMENT_POSITION_FOLLOWING;
  while (performance.now() < until && [...document.querySelectorAll(ON_ITS_WAY)].some(waits)) {
    await new Promise((later) => { setTimeout(later, 20); });
    await frame(); // in which it is seen
  }
}

// together, for each change of the page by itself is a picture of it painted by itself
const CLOCKS = new Set();
let ticking;

function mount(parent) {
  styles();
  const root = document.createElement("div");
  root.className = "blc";
  root.innerHTML = `<div class="blc-legend" aria-hidden="true"></div><div class="blc-plot" role="img" tabindex="0" aria-keyshortcuts="${SHORTCUTS}"></div><div class="blc-wait">drawing …</div>
    <div class="blc-foot"><span class="blc-note"></span><button class="blc-follow" type="button" hidden></button>
    <span class="blc-clock"></span><button class="blc-toggle" type="button" aria-expanded="false">show as table</button>
    <button class="blc-save" type="button" aria-expanded="false">save</button>
    <span class="blc-formats" role="group" aria-label="Save this chart as" hidden>${FORMATS.map((format) => `<button type="button" data-format="${format}">${format.toUpperCase()}</button>`).join("")}</span>
    <span class="blc-said" role="status"></span><span class="blc-keys" aria-hidden="true">${HINT}</span></div>
    <div class="blc-table" hidden tabindex="0" role="region" aria-label="The chart as a table"></div>`;
  parent.append(root);
  const part = (name) => root.querySelector(`.blc-${name}`);
  const state = {
    root, plot: part("plot"), legend: part("legend"), wait: part("wait"), note: part("note"), clock: part("clock"), follow: part("follow"),
    toggle: part("toggle"), save: part("save"), formats: part("formats"), said: part("said"), table: part("table"),
    ticks: 0, skew: Infinity, epoch: 0, ranges: {}, drawn: "", at: null,
  };
  CLOCKS.add(state);
  ticking ??= setInterval(() => CLOCKS.forEach(showClock), 1000);
  state.resize = new ResizeObserver(() => draw(state));
  state.resize.observe(state.plot);
  state.clicked = ({ x, y, curveNumber, customdata }) => state.trigger("click", { x, y, curve: curveNumber, customdata: customdata ?? null });
  const act = { reset: () => resetView(state), table: () => toggleTable(state), save: () => toggleFormats(state, true) };
  state.toggle.onclick = act.table;
  state.save.onclick = () => toggleFormats(state);
  state.follow.onclick = act.reset;
  state.formats.onclick = ({ target }) => { if (target.dataset.format) saveAs(state, target.dataset.format); };
  state.formats.onkeydown = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    toggleFormats(state, false);
    state.save.focus();
  };
  state.plot.addEventListener("keydown", (event) => onKey(event, state, act));
  state.plot.addEventListener("blur", () => leave(state));
  state.plot.addEventListener("pointerdown", () => { state.dragging = true; }, true);
  state.release = () => { if (state.dragging) { state.dragging = false; setTimeout(() => draw(state), 0); } };
  window.addEventListener("pointerup", state.release);
  root.dataset.mount = String((window.__blcMounts = (window.__blcMounts || 0) + 1));
  return state;
}

function unmount(parent, state) {
  state.gone = true;
  CLOCKS.delete(state);
  clearTimeout(state.sending);
  state.resize.disconnect();
  window.removeEventListener("pointerup", state.release);
  if (window.Plotly) window.Plotly.purge(state.plot);
  state.root.remove();
  STATES.delete(parent);
}

function toggleTable(state) {
  state.table.hidden = !state.table.hidden;
  state.toggle.setAttribute("aria-expanded", String(!state.table.hidden));
  state.toggle.textContent = state.table.hidden ? "show as table" : "hide table";
  fillTable(state);
  return true;
}

// wanted: whether they shall be there; without it the other way than now
function toggleFormats(state, wanted = state.formats.hidden) {
  state.formats.hidden = !wanted;
  state.save.setAttribute("aria-expanded", String(wanted));
  if (wanted) state.formats.firstElementChild.focus();
  return true;
}

async function saveAs(state, format) {
  if (!state.figure) return;
  state.said.classList.remove("quiet");
  state.said.textContent = `making ${format.toUpperCase()} …`;
  try {
    const { save } = await import("./picture.js");
    state.said.textContent = `saved ${await save(state, format)}`;
  } catch (error) {
    state.said.textContent = `${format.toUpperCase()} could not be made: ${error.message}`;
  }
}

// in steps: each change of a word is a picture of the page painted anew, and while all is well there is none
function ageOf(seconds) {
  if (seconds < CLOCK_STEP_S) return `under ${CLOCK_STEP_S} s`;
  if (seconds < 90) return `${CLOCK_STEP_S * Math.floor(seconds / CLOCK_STEP_S)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

function showClock(state) {
  const { as_of: asOf, frozen } = state.data || {};
  const age = () => `updated ${ageOf(Math.max(0, Date.now() / 1000 - state.skew - asOf))} ago`;
  const text = asOf == null ? "" : frozen || age();
  if (state.clock.textContent !== text) state.clock.textContent = text;
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
  if (!state.data || state.dragging || state.drawing || state.gone || !state.plot.clientWidth) return;
  const print = fingerprint(state);
  if (print === state.drawn) return;
  state.drawing = true;
  try {
    if (!library) await afterAbove(state);
    await plotly(state.data.plotly);
    if (!state.ticks) await myTurn();
    if (state.gone) return; // else a plot that nobody sees would never be taken away
    const begin = performance.now();
    const figure = themed(state);
    await window.Plotly.react(state.plot, figure.data, figure.layout, CONFIG);
    if (state.gone) { window.Plotly.purge(state.plot); return; }
    state.drawn = print;
    state.figure = figure;
    // below the labels of rows nothing is drawn that the buttons could cover
    state.plot.classList.toggle("labelled", state.plot._fullLayout._size.l >= LABELLED_PX);
    state.root.dataset.tick = String(++state.ticks);
    state.root.dataset.drawMs = (performance.now() - begin).toFixed(0);
    showLegend(state);
    showNote(state);
    state.wait.hidden = true;
    if (!state.listening) listen(state);
    fillTable(state);
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
  // the keys do what they do, and six more stops a chart would be in the way of everybody who goes by Tab
  for (const button of state.plot.querySelectorAll(".modebar-btn")) button.tabIndex = -1;
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
  state.plot.on("plotly_click", ({ points }) => { if (state.data.clicks && points.length) state.clicked(points[0]); });
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

// what has come, with its figure and table at hand
function take(state, data) {
  state.data = data;
  // the least difference seen is the clocks' difference; the rest is the way here
  if (data.sent_at != null) state.skew = Math.min(state.skew, Date.now() / 1000 - data.sent_at);
  state.root.dataset.asOf = data.as_of ?? "";
  state.plot.style.minHeight = `${data.height}px`;
  state.plot.setAttribute("aria-label", data.label);
  showNote(state);
  showClock(state);
  draw(state);
}

export default function host({ data, parentElement, setStateValue, setTriggerValue }) {
  let state = STATES.get(parentElement);
  if (!state) STATES.set(parentElement, (state = mount(parentElement)));
  state.set = setStateValue;
  state.trigger = setTriggerValue;
  state.coming = data;
  if (!data.packed) take(state, data);
  else unpacked(data).then(
    (whole) => { if (state.coming === data && !state.gone) take(state, whole); },
    (error) => { state.wait.hidden = false; state.wait.textContent = `the chart could not be unpacked: ${error.message}`; },
  );
  // Streamlit also calls this for a call that new data overtook while it was loading: only what has left the page ends
  return () => setTimeout(() => { if (!parentElement.isConnected) unmount(parentElement, state); });
}
