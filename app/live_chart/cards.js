// A row of numbers, updated in place: each with its label, what to compare it with, and a small line of its past.

const STATES = new WeakMap();
const SVG = "http://www.w3.org/2000/svg";
const CSS = `
.bnc { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; width: 100%; color: var(--st-text-color); font-family: var(--st-font); }
.bnc-card { border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius); padding: .75rem .9rem .6rem; display: flex; flex-direction: column; gap: .15rem; min-width: 0; container-type: inline-size; }
.bnc-label { font-size: .85rem; opacity: .8; cursor: help; text-decoration: underline dotted transparent; text-underline-offset: 3px; align-self: flex-start; }
.bnc-label:hover, .bnc-label:focus-visible { text-decoration-color: currentColor; }
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

function makeCard(root, key) {
  const card = document.createElement("div");
  card.className = "bnc-card";
  card.dataset.key = key;
  card.innerHTML = `<span class="bnc-head"><span class="bnc-label" tabindex="0"></span><span class="bnc-tag"></span></span>
    <span class="bnc-value"></span><span class="bnc-note"></span>
    <svg viewBox="0 0 100 30" preserveAspectRatio="none" aria-hidden="true"><polyline/></svg>`;
  root.append(card);
  return card;
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
    parentElement.append(state.root);
    STATES.set(parentElement, state);
  }
  for (const { key, label, value, note, tone, help, exact, spark, tag } of data.cards) {
    if (!state.cards.has(key)) state.cards.set(key, makeCard(state.root, key));
    const card = state.cards.get(key);
    const [head, number, beside] = card.children;
    const [name, mark] = head.children;
    put(name, label);
    put(mark, tag || "");
    name.title = help;
    put(number, value);
    put(beside, note);
    beside.className = `bnc-note ${tone}`;
    card.dataset.value = exact ?? "";
    card.querySelector("polyline").setAttribute("points", spark.length > 2 ? points(spark) : "");
  }
  return () => { state.root.remove(); STATES.delete(parentElement); };
}
