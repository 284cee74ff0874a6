// A list of numbers, updated in place: each with its label, what to compare it with, and a small line of its past. What
// a number means stands behind its label, for a pointer and for the keyboard. No live region: nobody wants a number read
// out every second.

const STATES = new WeakMap();
const CSS = `
.bnc { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; width: 100%; color: var(--st-text-color); font-family: var(--st-font); }
.bnc-card { position: relative; border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius); padding: .75rem .9rem .6rem; display: flex; flex-direction: column; gap: .15rem; min-width: 0; }
.bnc-sized { container-type: inline-size; display: flex; flex-direction: column; gap: .15rem; }
.bnc-label { font-size: .85rem; opacity: .8; cursor: help; text-decoration: underline dotted transparent; text-underline-offset: 3px; align-self: flex-start; }
.bnc-label:hover, .bnc-label:focus-visible { text-decoration-color: currentColor; }
.bnc-label:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; border-radius: 2px; }
.bnc-tip { display: none; position: absolute; z-index: 20; left: .4rem; right: .4rem; top: 2.1rem; min-width: 11rem; padding: .5rem .65rem; border-radius: .4rem; font-size: .8rem; line-height: 1.4; white-space: pre-line; background: var(--st-secondary-background-color); border: 1px solid var(--st-border-color); box-shadow: 0 4px 16px rgba(0,0,0,.18); }
.bnc-label:hover ~ .bnc-tip, .bnc-label:focus-visible ~ .bnc-tip, .bnc-tip:hover { display: block; }
.bnc-label.quiet ~ .bnc-tip { display: none; }
.bnc-head { display: flex; justify-content: space-between; align-items: baseline; gap: .15rem .5rem; flex-wrap: wrap; }
.bnc-tag { font-size: .66rem; font-weight: 600; letter-spacing: .04em; padding: 0 .35rem; border-radius: .35rem; color: var(--st-violet-text-color); background: var(--st-violet-background-color); }
.bnc-tag:empty { display: none; }
.bnc-value { font-size: min(1.85rem, 13.5cqi); line-height: 1.25; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bnc-note { font-size: .8rem; line-height: 1.3rem; min-height: 1.3rem; opacity: .8; }
.bnc-note.good { color: var(--st-green-text-color); opacity: 1; }
.bnc-note.bad { color: var(--st-red-text-color); opacity: 1; }
.bnc svg { width: 100%; height: 30px; margin-top: .3rem; overflow: visible; }
.bnc polyline { fill: none; stroke: var(--st-primary-color); stroke-width: 1.6; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
`;

function styles() {
  if (document.getElementById("bnc-style")) return;
  const style = document.createElement("style");
  style.id = "bnc-style";
  style.textContent = CSS;
  document.head.appendChild(style);
}

let cardsMade = 0;

function makeCard(root, key) {
  const card = document.createElement("div");
  const tip = `bnc-tip-${++cardsMade}`;
  card.className = "bnc-card";
  card.setAttribute("role", "listitem");
  card.dataset.key = key;
  card.innerHTML = `<span class="bnc-head"><span class="bnc-label" tabindex="0" aria-describedby="${tip}"></span><span class="bnc-tag"></span><span class="bnc-tip" role="tooltip" id="${tip}"></span></span>
    <span class="bnc-sized"><span class="bnc-value"></span></span><span class="bnc-note"></span>
    <svg viewBox="0 0 100 30" preserveAspectRatio="none" aria-hidden="true"><polyline/></svg>`;
  const part = (name) => card.querySelector(`.bnc-${name}`);
  const label = part("label");
  // what covers its neighbours can be sent away without leaving the label
  label.onkeydown = (event) => { if (event.key === "Escape") label.classList.add("quiet"); };
  label.onblur = label.onmouseleave = () => label.classList.remove("quiet");
  root.append(card);
  return { card, label, tag: part("tag"), tip: part("tip"), value: part("value"), note: part("note"), line: card.querySelector("polyline") };
}

function points(values) {
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  return values.map((v, i) => `${(100 * i) / (values.length - 1)},${27 - (24 * (v - low)) / span}`).join(" ");
}

const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };

export default function cards({ data, parentElement }) {
  styles();
  let state = STATES.get(parentElement);
  if (!state) {
    state = { root: document.createElement("div"), cards: new Map() };
    state.root.className = "bnc";
    state.root.setAttribute("role", "list");
    state.root.setAttribute("aria-label", "Key figures");
    parentElement.append(state.root);
    STATES.set(parentElement, state);
  }
  for (const { key, label, value, note, tone, help, exact, spark, tag } of data.cards) {
    if (!state.cards.has(key)) state.cards.set(key, makeCard(state.root, key));
    const parts = state.cards.get(key);
    put(parts.label, label);
    put(parts.tag, tag || "");
    put(parts.tip, help);
    put(parts.value, value);
    put(parts.note, note);
    parts.note.className = `bnc-note ${tone}`;
    parts.card.dataset.value = exact ?? "";
    parts.line.setAttribute("points", spark.length > 2 ? points(spark) : "");
  }
  // also called for a call that new data overtook while it was loading: only what has left the page ends
  return () => setTimeout(() => { if (!parentElement.isConnected) { state.root.remove(); STATES.delete(parentElement); } });
}
