// How a chart looks: styles of everything around the plot, and what Python leaves to the page, the colours of its theme.

const CSS = `
.blc { position: relative; width: 100%; color: var(--st-text-color); font-family: var(--st-font); }
.blc-plot { width: 100%; }
.blc-plot:focus-visible, .blc-table:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; border-radius: 3px; }
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
.blc-legend i.circle { border-radius: 50%; }
.blc-legend i.line { height: 3px; border-radius: 0; box-shadow: none; }
.blc-plot.labelled .modebar-container { top: auto !important; bottom: 2rem; }
.blc-plot.labelled .modebar { right: auto !important; left: 0; top: 0; white-space: nowrap; }
.blc-plot.labelled .modebar-group { padding-left: 2px !important; }
.blc-plot .modebar-btn path { fill: var(--st-text-color) !important; opacity: .55; }
.blc-wait { position: absolute; inset: 0 0 1.6rem 0; display: grid; place-items: center; font-size: .85rem; opacity: .75; pointer-events: none; }
.blc-foot { display: flex; gap: 0 .9rem; align-items: center; flex-wrap: wrap; font-size: .8rem; line-height: 1.6rem; min-height: 1.6rem; }
.blc-note { flex: 1 1 auto; opacity: .75; }
.blc-clock { opacity: .75; font-variant-numeric: tabular-nums; }
.blc-keys { display: none; flex-basis: 100%; opacity: .75; }
.blc-plot:focus-visible ~ .blc-foot .blc-keys { display: block; }
.blc-formats { display: inline-flex; gap: .6rem; }
.blc-said { flex-basis: 100%; opacity: .75; }
.blc-said:empty { display: none; }
.blc-said.quiet { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.blc button { font: inherit; color: var(--st-link-color); background: none; border: 0; padding: 0; cursor: pointer; text-decoration: underline; text-underline-offset: 2px; }
.blc button:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; border-radius: 2px; }
.blc [hidden] { display: none; }
.blc-table { max-height: 18rem; overflow: auto; margin-top: .3rem; border: 1px solid var(--st-border-color); border-radius: .4rem; }
.blc-table table { border-collapse: collapse; width: 100%; font-size: .8rem; font-variant-numeric: tabular-nums; }
.blc-table caption { text-align: left; padding: .3rem .6rem; caption-side: top; }
.blc-table th, .blc-table td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--st-border-color); white-space: nowrap; font-weight: 400; }
.blc-table th:first-child { text-align: left; }
.blc-table thead th { position: sticky; top: 0; background: var(--st-secondary-background-color); font-weight: 600; }
`;

export function styles() {
  if (document.getElementById("blc-style")) return;
  const style = document.createElement("style");
  style.id = "blc-style";
  style.textContent = CSS;
  document.head.appendChild(style);
}

export const css = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();

export function isDark(colour) {
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
export function themed(state) {
  const figure = JSON.parse(state.data.fig);
  const text = css(state.root, "--st-text-color");
  const line = css(state.root, "--st-border-color");
  const panel = css(state.root, "--st-secondary-background-color");
  const dark = isDark(css(state.root, "--st-background-color"));
  for (const trace of figure.data) {
    const { labels, rows: names, dark: swaps, ground } = trace.meta || {};
    if (ground) trace.line.color = css(state.root, "--st-background-color") || trace.line.color;
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
    // measuring every label costs more than drawing the rows; few reach over an edge, and there is room for them
    layout[name].ticklabeloverflow ??= "allow";
  }
  layout.modebar = { bgcolor: "rgba(0,0,0,0)", ...layout.modebar };
  layout.uirevision = `${layout.uirevision || "keep"}-${state.epoch}`;
  layout.width = state.plot.clientWidth;
  // uirevision keeps a zoom only while the figure asks for the same range, and a live window asks for another each time
  for (const [name, range] of Object.entries(state.ranges)) layout[name] = { ...layout[name], range, autorange: false };
  return figure;
}

export function fingerprint(state) {
  const colours = ["--st-text-color", "--st-background-color"].map((name) => css(state.root, name)).join();
  return `${state.plot.clientWidth}|${colours}|${state.epoch}|${state.data.fig}`;
}
