// What needs attention: one card a finding, or one quiet line; patched in place, and none of it is read out by itself.

import { icon } from "./status.js";
import { explained, put, sheet } from "./tip.js";

const STATES = new WeakMap();
const CSS = `
.bat { display: flex; flex-direction: column; gap: .8rem; color: var(--st-text-color); font-family: var(--st-font); line-height: 1.5; }
.bat-cards { display: contents; }
.bat-card { display: flex; gap: .5rem; padding: .8rem; border-radius: var(--st-base-radius); overflow-wrap: anywhere; }
.bat-card i { font: 400 1.25rem/1.2 "Material Symbols Rounded"; user-select: none; }
.bat-quiet { font-size: .875rem; opacity: .8; }
.bat-quiet:empty { display: none; }
`;
const COLOURS = { error: "red", warning: "yellow", info: "blue" };

function card({ key, tone, icon: name, title, text }) {
  const element = document.createElement("div");
  const told = document.createElement("span");
  const bold = document.createElement("strong");
  const colour = COLOURS[tone];
  element.className = `bat-card st-key-attention_${key}`;
  element.setAttribute("role", "listitem");
  element.style.color = `var(--st-${colour}-text-color)`;
  element.style.backgroundColor = `var(--st-${colour}-background-color)`;
  bold.textContent = `${title}.`;
  told.append(bold, ` ${text}`);
  element.append(icon(name), told);
  return element;
}

function mount(parent) {
  sheet("bat-style", CSS);
  const make = (name) => Object.assign(document.createElement("div"), { className: name });
  const state = { root: make("bat"), cards: make("bat-cards"), quiet: make("bat-quiet"), engine: explained("bat-quiet") };
  state.cards.setAttribute("role", "list");
  state.cards.setAttribute("aria-label", "Needs attention");
  state.root.append(state.cards, state.quiet, state.engine.root);
  parent.append(state.root);
  STATES.set(parent, state);
  return state;
}

export default function attention({ data, parentElement }) {
  const state = STATES.get(parentElement) || mount(parentElement);
  const print = JSON.stringify(data.cards);
  if (print !== state.print) state.cards.replaceChildren(...data.cards.map(card));
  state.print = print;
  put(state.quiet, data.quiet);
  put(state.engine.said, data.engine);
  put(state.engine.tip, data.engine_help);
  state.engine.root.style.display = data.engine ? "" : "none";
  // also called for a call that new data overtook while it was loading: only what has left the page ends
  return () => setTimeout(() => { if (!parentElement.isConnected) { state.root.remove(); STATES.delete(parentElement); } });
}
