// The table twin of a chart: the one that Python sent, or one read off the traces; drawn on request, written as CSV.

const MAX_CELLS = 6000; // more take the browser longer than a refresh lasts; the CSV has them all

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// milliseconds on a date axis, which hold the reader's local time, as text
function moment(value) {
  if (!isNumber(value)) return String(value);
  return new Date(value).toISOString().replace("T", " ").replace(/(\.000)?Z$/, "");
}

const axisOf = (state, trace, letter) => state.plot._fullLayout?.[(trace[`${letter}axis`] || letter).replace(letter, `${letter}axis`)];

function tracesOf(state) {
  const full = state.plot._fullData || [];
  return full.filter((t) => t.visible === true && t.x?.length && t.y?.length && t._input?.name && t.x[0] != null);
}

function derived(state) {
  const traces = tracesOf(state);
  const lying = traces.some((t) => t.orientation === "h");
  const rows = new Map();
  traces.forEach((trace, column) => {
    const [index, values] = lying ? [trace.y, trace.x] : [trace.x, trace.y];
    Array.from(index).forEach((x, i) => {
      if (!rows.has(x)) rows.set(x, Array(traces.length).fill(null));
      rows.get(x)[column] = values[i] ?? null;
    });
  });
  const dates = traces.length && axisOf(state, traces[0], lying ? "y" : "x")?.type === "date";
  const all = [...rows];
  // newest first, where there is an order
  if (all.every(([x]) => isNumber(x))) all.sort((a, b) => b[0] - a[0]);
  return {
    columns: [state.figure?.layout?.meta?.index || (lying ? "row" : "x"), ...traces.map((t) => t.name)],
    rows: all.map(([x, values]) => [dates ? moment(x) : x, ...values]),
  };
}

export const tableOf = (state) => state.data.table || derived(state);

const shown = (value) => (value == null ? "–" : typeof value === "number" ? String(+value.toPrecision(6)) : String(value));

function cell(tag, value, scope) {
  const element = document.createElement(tag);
  element.textContent = shown(value);
  if (scope) element.scope = scope;
  return element;
}

export function tableElement({ columns, rows }, title, most = Infinity) {
  const table = document.createElement("table");
  const caption = table.createCaption();
  const cut = Math.max(1, Math.floor(most / Math.max(1, columns.length)));
  const rest = rows.length > cut ? ` · the first ${cut.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows; the CSV has all of them` : "";
  caption.textContent = `${title}${rest}`;
  const head = table.createTHead().insertRow();
  head.append(...columns.map((name) => cell("th", name, "col")));
  table.createTBody().append(...rows.slice(0, cut).map((row) => {
    const line = document.createElement("tr");
    line.append(...row.map((value, i) => (i === 0 ? cell("th", value, "row") : cell("td", value))));
    return line;
  }));
  return table;
}

// anew only when it says something else, so that the reader's place in it is kept
export function fillTable(state) {
  if (state.table.hidden || !state.data) return;
  const table = tableOf(state);
  const print = JSON.stringify(table);
  if (print === state.tablePrint) return;
  state.tablePrint = print;
  state.table.replaceChildren(tableElement(table, state.data.title || state.data.label, MAX_CELLS));
}

// a spreadsheet would run a text that begins like a formula
const harmless = (text) => (/^[=+@\t\r]|^-(?![\d.])/.test(text) ? `'${text}` : text);

function field(value) {
  if (value == null || value === "–") return "";
  const text = typeof value === "number" ? String(value) : harmless(String(value));
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// tag: EMULATED or SIMULATED, in every row, so that it goes wherever a row goes
export function csvOf({ columns, rows }, tag) {
  const mark = tag ? [tag] : [];
  const lines = [[...columns, ...(tag ? ["devices"] : [])], ...rows.map((row) => [...row, ...mark])];
  return lines.map((line) => line.map(field).join(",")).join("\r\n") + "\r\n";
}
