// The part of the Live page that ticks, as one element of the page: status line, numbers, timeline with its window, and
// what needs attention. Each is drawn by its own module into its own place; what the reader does goes back to Python.

import attention from "./attention.js";
import cards from "./cards.js";
import host from "./host.js";
import status from "./status.js";
import { explained, put, sheet } from "./tip.js";

const STATES = new WeakMap();
// named as Streamlit names its containers: styles and tests find a part wherever it is drawn
const CSS = `
.bnw { display: flex; flex-direction: column; gap: 1rem; width: 100%; color: var(--st-text-color); font-family: var(--st-font); }
.bnw-cards { display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 2fr); gap: 1rem; }
@media (max-width: 640px) { .bnw-cards { grid-template-columns: minmax(0, 1fr); } }
.bnw-card { border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius); padding: calc(1rem - 1px); display: flex; flex-direction: column; gap: .8rem; min-width: 0; }
.bnw-head { display: flex; flex-wrap: wrap; align-items: center; justify-content: space-between; gap: .4rem 1rem; line-height: 1.5; }
.bnw-title { display: inline-flex; align-items: center; }
.bnw-tag { font-size: .875rem; padding: 0 .3rem; margin-left: .4rem; border-radius: .3rem; color: var(--st-violet-text-color); background: var(--st-violet-background-color); }
.bnw-tag:empty { display: none; }
.bnw-windows { display: inline-flex; border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius, .5rem); }
.bnw-windows button { font: inherit; font-size: .9rem; line-height: 1.6; padding: .2rem .75rem; color: inherit; background: none; border: 0; border-left: 1px solid var(--st-border-color); cursor: pointer; }
.bnw-windows button:first-child { border-left: 0; border-radius: .45rem 0 0 .45rem; }
.bnw-windows button:last-child { border-radius: 0 .45rem .45rem 0; }
.bnw-windows button:hover { color: var(--st-link-color); }
.bnw-windows button[aria-checked=true] { font-weight: 600; color: var(--st-link-color); background: color-mix(in srgb, var(--st-primary-color) 12%, transparent); box-shadow: inset 0 0 0 1px var(--st-primary-color); }
.bnw-windows button:focus-visible, .bnw-back:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; }
.bnw-back { align-self: flex-start; font: inherit; font-size: .9rem; color: inherit; background: none; border: 1px solid var(--st-border-color); border-radius: .5rem; padding: .2rem .75rem; cursor: pointer; }
.bnw-back i { font: 400 1.1rem/1 "Material Symbols Rounded"; vertical-align: -.2rem; margin-right: .3rem; }
.bnw-none { padding: .8rem; border-radius: var(--st-base-radius); color: var(--st-blue-text-color); background: var(--st-blue-background-color); }
.bnw [hidden] { display: none; }
`;
const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

function heading(text, end) {
  const root = document.createElement("span");
  const bold = document.createElement("strong");
  const tag = document.createElement("span");
  const help = explained("", true);
  root.className = "bnw-title";
  tag.className = "bnw-tag";
  if (end) help.root.classList.add("end");
  bold.textContent = text;
  root.append(bold, tag, help.root);
  return { root, bold, tag, tip: help.tip };
}

function mount(parent) {
  sheet("bnw-style", CSS);
  const root = document.createElement("div");
  root.className = "bnw";
  root.innerHTML = `<div class="st-key-status_line"></div><div class="st-key-numbers"></div>
    <div class="bnw-cards"><section class="bnw-card st-key-timeline" aria-label="Timeline"><div class="bnw-head"><div class="bnw-windows" role="radiogroup" aria-label="Window"></div></div>
    <button class="bnw-back st-key-timeline_all_rows" type="button"><i aria-hidden="true" translate="no">arrow_back</i>All rows</button>
    <div class="bnw-none" hidden></div><div class="bnw-chart"></div></section>
    <section class="bnw-card st-key-attention" aria-label="Needs attention"><div class="bnw-list"></div></section></div>`;
  const part = (name) => root.querySelector(name);
  const state = {
    root, windows: part(".bnw-windows"), back: part(".bnw-back"), none: part(".bnw-none"), chart: part(".bnw-chart"),
    status: part(".st-key-status_line"), numbers: part(".st-key-numbers"), attention: part(".bnw-list"),
    doing: heading("What every device is doing"), needs: heading("Needs attention", true),
  };
  part(".bnw-head").prepend(state.doing.root);
  part(".st-key-attention").prepend(state.needs.root);
  state.back.remove(); // there while a group is open
  state.back.onclick = () => state.trigger("back", true);
  state.windows.onclick = ({ target }) => { if (target.dataset.window) choose(state, target); };
  state.windows.onkeydown = (event) => {
    const by = STEPS[event.key];
    if (!by) return;
    const all = [...state.windows.children];
    choose(state, all[(all.indexOf(event.target) + by + all.length) % all.length]);
    event.preventDefault();
  };
  parent.append(root);
  STATES.set(parent, state);
  return state;
}

function check(state, wanted) {
  for (const button of state.windows.children) {
    const on = button.dataset.window === wanted;
    button.setAttribute("aria-checked", String(on));
    button.tabIndex = on ? 0 : -1;
  }
}

function choose(state, button) {
  check(state, button.dataset.window);
  button.focus();
  state.chosen = button.dataset.window;
  state.set("window", state.chosen);
}

function showWindows(state, { windows, window: shown }) {
  if (state.windows.childElementCount !== windows.length) {
    state.windows.replaceChildren(...windows.map((name) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.window = button.textContent = name;
      button.setAttribute("role", "radio");
      return button;
    }));
  }
  // a refresh that left before the choice arrived there does not take it back
  if (state.chosen === shown) state.chosen = null;
  if (!state.chosen) check(state, shown);
}

export default function board({ data, parentElement, setStateValue, setTriggerValue }) {
  const state = STATES.get(parentElement) || mount(parentElement);
  const { timeline, attention: needs } = data;
  state.set = setStateValue;
  state.trigger = setTriggerValue;
  const ends = [
    status({ data: data.status, parentElement: state.status }),
    cards({ data: { cards: data.numbers }, parentElement: state.numbers }),
    attention({ data: needs, parentElement: state.attention }),
  ];
  put(state.doing.tag, data.tag);
  put(state.doing.tip, timeline.help);
  put(state.needs.bold, `Needs attention · ${needs.cards.length}`);
  put(state.needs.tag, data.tag);
  put(state.needs.tip, needs.help);
  showWindows(state, timeline);
  if (timeline.opened !== state.back.isConnected) {
    if (timeline.opened) state.none.before(state.back);
    else state.back.remove();
  }
  put(state.none, timeline.none);
  state.none.hidden = !timeline.none;
  state.chart.hidden = !data.chart;
  if (data.chart) ends.push(host({ data: data.chart, parentElement: state.chart, setStateValue, setTriggerValue }));
  return () => {
    ends.forEach((end) => end());
    setTimeout(() => { if (!parentElement.isConnected) { state.root.remove(); STATES.delete(parentElement); } });
  };
}
