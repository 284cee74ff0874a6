// A chart as a file: PNG, SVG, one page of HTML that needs no network, or its table as CSV. Title, run, legend and the
// label of what is not a measurement are drawn into the picture; nothing is fetched but plotly.js, from where it is served.

import { isDark, css, themed } from "./look.js";
import { csvOf, tableElement, tableOf } from "./table.js";

const FONT = "Arial, Helvetica, sans-serif"; // a picture cannot rely on the page's own fonts
const PAD = 14;
const LINE_PX = 18;
const TITLE_PX = 15;
const SMALL_PX = 12;
const MOST_TITLE_LINES = 3;
const SCALE = 2; // pixels of a PNG for one of the page, so that it is sharp in print
const LEAST_PX = 640; // a narrow card is not a picture's shape, and words are wider in a font that everybody has
const EDGE = "rgba(128,132,142,0.55)";
const TYPES = { png: "image/png", svg: "image/svg+xml", html: "text/html", csv: "text/csv" };

const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

function wrapped(text, px, width, bold, most = Infinity) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${bold ? "bold " : ""}${px}px ${FONT}`;
  const lines = [""];
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && pen.measureText(longer).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines.length <= most ? lines : [...lines.slice(0, most - 1), `${lines[most - 1]} …`];
}

// the marks of the legend beside a chart, as SVG in a box of 12 x 12
function mark(shape, colour) {
  const fill = `fill="${escaped(colour)}"`;
  const shapes = {
    hatch: `<rect width="12" height="12" fill="none" stroke="${EDGE}"/><path d="M0 6 6 0M0 12 12 0M6 12 12 6" stroke="${escaped(colour)}"/>`,
    triangle: `<polygon points="0,2 12,2 6,11" ${fill}/>`,
    right: `<polygon points="1.5,0.5 11,6 1.5,11.5" fill="#fff" stroke="${escaped(colour)}" stroke-width="1.4"/>`,
    left: `<polygon points="10.5,0.5 1,6 10.5,11.5" fill="#fff" stroke="${escaped(colour)}" stroke-width="1.4"/>`,
    diamond: `<polygon points="6,0.5 11.5,6 6,11.5 0.5,6" ${fill}/>`,
    circle: `<circle cx="6" cy="6" r="5.5" ${fill} stroke="${EDGE}"/>`,
    line: `<rect y="4.5" width="12" height="3" ${fill}/>`,
  };
  return shapes[shape] || `<rect x="0.5" y="0.5" width="11" height="11" rx="2" ${fill} stroke="${EDGE}"/>`;
}

const legendOf = (state) => state.figure.layout.meta?.legend || [];

// "what is shown: its main numbers"
function halves(label) {
  const at = label.indexOf(": ");
  return at < 0 ? [label, ""] : [label.slice(0, at), label.slice(at + 2)];
}

function head(state) {
  const { tag, title, label, as_of: asOf } = state.data;
  const at = asOf == null ? "" : `as of ${new Date(asOf * 1000).toLocaleString("sv-SE")}`;
  const [what, numbers] = title ? [title, label] : halves(label);
  return { title: [tag, what].filter(Boolean).join(" · "), numbers, under: [runOf(state), at].filter(Boolean).join(" · ") };
}

// how to use a live chart, and what a pixel of the page stands for, mean nothing on paper
const noteOf = (state) => state.note.textContent.split(" · ").filter((part) => !/^(drag|click|1 px)\b/.test(part)).join(" · ");

const runOf = (state) => state.data.name.split(":")[1] || new URLSearchParams(window.location.search).get("run") || "";

export function fileName(state, format) {
  const parts = ["bidirl", runOf(state), state.data.name.split(":")[0], state.data.tag].filter(Boolean);
  return `${parts.join("_").replace(/[^\w.-]+/g, "-").slice(0, 120)}.${format}`;
}

// how it is shown now, the reader's zoom included, in a font that every viewer has and on the page's own ground
function figureOf(state) {
  const figure = themed(state);
  const ground = css(state.root, "--st-background-color") || "#fff";
  figure.layout.font.family = FONT;
  figure.layout.width = Math.max(LEAST_PX, Math.round(figure.layout.width));
  figure.layout.paper_bgcolor = ground;
  return { ...figure, ground, ink: css(state.root, "--st-text-color") || "#222" };
}

function text(line, x, y, px, ink, bold = false) {
  return `<text x="${x}" y="${y}" font-family="${FONT}" font-size="${px}" fill="${escaped(ink)}"${bold ? ' font-weight="bold"' : ""}>${escaped(line)}</text>`;
}

function legendRows(items, width) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${SMALL_PX}px ${FONT}`;
  const rows = [[]];
  let x = PAD;
  for (const item of items) {
    const wide = 12 + 6 + pen.measureText(item.name).width + 16;
    if (x + wide > width - PAD && rows.at(-1).length) { rows.push([]); x = PAD; }
    rows.at(-1).push({ ...item, x });
    x += wide;
  }
  return items.length ? rows : [];
}

export async function svgOf(state) {
  const { data, layout, ground, ink } = figureOf(state);
  const { width } = layout;
  const told = head(state);
  const parts = [];
  let y = PAD;
  for (const line of wrapped(told.title, TITLE_PX, width - 2 * PAD, true, MOST_TITLE_LINES)) parts.push(text(line, PAD, (y += LINE_PX), TITLE_PX, ink, true));
  for (const part of [told.numbers, told.under]) {
    for (const line of wrapped(part, SMALL_PX, width - 2 * PAD, false, MOST_TITLE_LINES)) if (line) parts.push(text(line, PAD, (y += LINE_PX), SMALL_PX, ink));
  }
  y += 6;
  for (const row of legendRows(legendOf(state), width)) {
    y += LINE_PX;
    for (const { name, colour, shape, x } of row) parts.push(`<g transform="translate(${x} ${y - 10})">${mark(shape, colour)}</g>${text(name, x + 18, y, SMALL_PX, ink)}`);
  }
  y += 8;
  const plot = await window.Plotly.toImage({ data, layout }, { format: "svg", width, height: state.data.height, imageDataOnly: true });
  parts.push(plot.slice(plot.indexOf("<svg")).replace("<svg", `<svg x="0" y="${y}"`));
  y += state.data.height;
  for (const line of wrapped(noteOf(state), SMALL_PX, width - 2 * PAD, false)) if (line) parts.push(text(line, PAD, (y += LINE_PX), SMALL_PX, ink));
  const height = Math.ceil(y + PAD);
  return {
    width, height,
    svg: `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(told.title)}"><rect width="100%" height="100%" fill="${escaped(ground)}"/>${parts.join("")}</svg>`,
  };
}

async function pngOf(state) {
  const { svg, width, height } = await svgOf(state);
  const address = URL.createObjectURL(new Blob([svg], { type: TYPES.svg }));
  try {
    const image = new Image();
    await new Promise((resolve, reject) => {
      image.onload = resolve;
      image.onerror = () => reject(new Error("the browser cannot draw it"));
      image.src = address;
    });
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width * SCALE, height * SCALE];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("it is too large"))), TYPES.png));
  } finally {
    URL.revokeObjectURL(address);
  }
}

async function htmlOf(state) {
  const { data, layout, ground, ink } = figureOf(state);
  const answer = await fetch(new URL(state.data.plotly, window.location.origin));
  if (!answer.ok) throw new Error(`plotly.js: ${answer.status}`);
  const library = (await answer.text()).replace(/<\/script/gi, "<\\/script");
  delete layout.width;
  const told = head(state);
  const figure = JSON.stringify({ data, layout: { ...layout, autosize: true } }).replaceAll("<", "\\u003c");
  const legend = legendOf(state).map(({ name, colour, shape }) => `<span><svg width="12" height="12" aria-hidden="true">${mark(shape, colour)}</svg> ${escaped(name)}</span>`).join("");
  const line = isDark(ground) ? "#454d5c" : "#d5d9e2";
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${escaped(told.title)}</title>
<style>body { font: 15px ${FONT}; color: ${ink}; background: ${ground}; margin: 1.5rem; } h1 { font-size: 1.15rem; } .legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .85rem; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .85rem; } th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid ${line}; font-weight: 400; } th:first-child, caption { text-align: left; } thead th { font-weight: 600; } details { margin-top: 1rem; overflow: auto; }</style></head>
<body><h1>${escaped(told.title)}</h1><p>${escaped(told.numbers)}</p><p>${escaped(told.under)}</p><div class="legend">${legend}</div><div id="chart" role="img" aria-label="${escaped(state.data.label)}"></div><p>${escaped(noteOf(state))}</p>
<details><summary>As a table</summary>${tableElement(tableOf(state), told.title).outerHTML}</details>
<script>${library}</script>
<script>const figure = ${figure}; Plotly.newPlot("chart", figure.data, figure.layout, { responsive: true, displaylogo: false, plotlyServerURL: "", modeBarButtonsToRemove: ["sendChartToCloud"] });</script></body></html>
`;
}

const MAKERS = {
  png: pngOf,
  svg: async (state) => (await svgOf(state)).svg,
  html: htmlOf,
  csv: (state) => csvOf(tableOf(state), state.data.tag),
};

// hands the file to the browser and returns its name
export async function save(state, format) {
  const made = await MAKERS[format](state);
  const blob = made instanceof Blob ? made : new Blob([made], { type: `${TYPES[format]};charset=utf-8` });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = fileName(state, format);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return link.download;
}
