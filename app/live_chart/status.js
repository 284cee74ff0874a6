// The line under a page's title: state, kinds of run, how far it got, the engine's heartbeat, and the link to copy. One
// element for the page around it, which looks at each of its own again with every refresh.

import { explained, put, sheet } from "./tip.js";

const STATES = new WeakMap();
const CSS = `
.bst { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem 1rem; width: 100%; min-height: 1.75rem; color: var(--st-text-color); font-family: var(--st-font); line-height: 1.5; }
.bst-badges { display: contents; }
.bst-badge { display: inline-flex; align-items: center; gap: .25rem; padding: 0 .4rem; border-radius: .3rem; font-size: .875rem; white-space: nowrap; }
.bst-badge i { font: 400 1rem/1 "Material Symbols Rounded"; font-style: normal; user-select: none; }
.bst-beat { font-size: .875rem; opacity: .8; display: inline-flex; align-items: center; gap: .25rem; font-variant-numeric: tabular-nums; }
.bst-beat i { font: 400 1rem/1 "Material Symbols Rounded"; user-select: none; }
.bst-copy { font: inherit; font-size: .85rem; color: var(--st-link-color); background: none; border: 0; padding: 0; cursor: pointer; white-space: nowrap; }
.bst-copy:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; border-radius: 2px; }
.bst-said { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
`;
const COPIED_MS = 2000;

export function icon(name) {
  const element = document.createElement("i");
  element.setAttribute("aria-hidden", "true");
  element.setAttribute("translate", "no");
  element.textContent = name;
  return element;
}

// **strong** is all the markup that there is
function strong(element, text) {
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  element.replaceChildren(...text.split("**").map((part, i) => {
    if (i % 2 === 0) return part;
    const bold = document.createElement("strong");
    bold.textContent = part;
    return bold;
  }));
}

function badge({ text, icon: name, colour, help }) {
  const { root, said, tip } = explained("bst-badge");
  said.append(icon(name), text);
  said.style.color = `var(--st-${colour}-text-color)`;
  said.style.backgroundColor = `var(--st-${colour}-background-color)`;
  if (help) { tip.textContent = help; return root; }
  said.removeAttribute("tabindex");
  said.removeAttribute("aria-describedby");
  said.style.cursor = "default";
  return said;
}

function copyButton() {
  const button = document.createElement("button");
  const show = (text) => { button.textContent = text; };
  button.type = "button";
  button.className = "bst-copy";
  button.title = "Copy the address of this run";
  show("Copy link");
  button.onclick = async () => {
    try { await navigator.clipboard.writeText(window.location.href); show("Copied"); }
    catch { window.prompt("Copy this address", window.location.href); }
    setTimeout(() => show("Copy link"), COPIED_MS);
  };
  return button;
}

function mount(parent) {
  sheet("bst-style", CSS);
  const make = (tag, name) => Object.assign(document.createElement(tag), { className: name });
  const state = { root: make("div", "bst"), badges: make("span", "bst-badges"), facts: explained("bst-facts"), beat: explained("bst-beat"), said: make("span", "bst-said") };
  // the one thing that is read out by itself: a state that changed, never a number that ticks
  state.said.setAttribute("role", "status");
  state.root.append(state.badges, state.facts.root, state.beat.root, copyButton(), state.said);
  parent.append(state.root);
  STATES.set(parent, state);
  return state;
}

export default function status({ data, parentElement }) {
  const state = STATES.get(parentElement) || mount(parentElement);
  const print = JSON.stringify(data.badges);
  if (print !== state.print) state.badges.replaceChildren(...data.badges.map(badge));
  state.print = print;
  strong(state.facts.said, data.facts);
  put(state.facts.tip, data.facts_help);
  state.beat.root.hidden = !data.beat;
  state.beat.root.style.display = data.beat ? "" : "none";
  if (!state.beat.text) {
    state.beat.text = document.createElement("span");
    state.beat.said.append(icon("favorite"), state.beat.text);
  }
  put(state.beat.text, data.beat);
  put(state.beat.tip, data.beat_help);
  put(state.said, data.said);
  // also called for a call that new data overtook while it was loading: only what has left the page ends
  return () => setTimeout(() => { if (!parentElement.isConnected) { state.root.remove(); STATES.delete(parentElement); } });
}
