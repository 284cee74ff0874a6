// A chart by keyboard: pan, zoom, go from point to point as a pointer would, and click on the one that is reached.

export const HINT = "← → pan (with Shift: far) · + − zoom · 0 or Esc reset · ↑ ↓ point by point (with Shift: ten) · Page ↑ ↓ series · Enter opens · T table · S save";
export const SHORTCUTS = "ArrowLeft ArrowRight ArrowUp ArrowDown PageUp PageDown + - 0 Escape Enter T S";
const PAN = 0.1; // of what is shown
const FAR = 0.5;
const ZOOM = 0.8; // a quarter less or more is seen at a time
const MANY = 10;
const HOVER_MS = 90; // Plotly shows at most one hover in 50 ms, the last one late

function movable(state) {
  const full = state.plot._fullLayout || {};
  return Object.keys(full).filter((name) => /^xaxis\d*$/.test(name) && !full[name].fixedrange && full[name]._length > 0);
}

// no further than the axis goes, and not shorter for that
function within(axis, [low, high]) {
  const [least, most] = [axis.minallowed, axis.maxallowed].map((edge) => edge === undefined ? undefined : axis.r2l(edge));
  if (least === undefined || most === undefined) return [low, high];
  if (high - low >= most - least) return [least, most];
  const by = Math.max(least - low, 0) + Math.min(most - high, 0);
  return [low + by, high + by];
}

// change: from the edges of an axis, as numbers, to its new ones
function reframe(state, change) {
  const axes = movable(state);
  if (!axes.length) return false;
  const full = state.plot._fullLayout;
  window.Plotly.relayout(state.plot, Object.fromEntries(axes.map((name) => {
    const axis = full[name];
    const [low, high] = axis.range.map((edge) => axis.r2l(edge));
    return [`${name}.range`, within(axis, change(low, high)).map((edge) => axis.l2r(edge))];
  })));
  return true;
}

const pan = (state, share) => reframe(state, (low, high) => [low + (high - low) * share, high + (high - low) * share]);

function zoom(state, factor) {
  return reframe(state, (low, high) => {
    const middle = (low + high) / 2;
    const half = ((high - low) / 2) * factor;
    return [middle - half, middle + half];
  });
}

// the rows of a raster in the middle of what is shown, or every point in view
function pointsOf(state, trace, curve) {
  const full = state.plot._fullLayout;
  const axis = full[(trace.xaxis || "x").replace("x", "xaxis")];
  const [low, high] = axis.range.map((edge) => axis.r2l(edge)).sort((a, b) => a - b);
  const subplot = `${trace.xaxis || "x"}${trace.yaxis || "y"}`;
  if (trace.type === "heatmap") {
    const { y } = state.plot.calcdata[curve][0];
    return Array.from({ length: y.length - 1 }, (_, point) => ({ curve, point, subplot, xval: (low + high) / 2, yval: (y[point] + y[point + 1]) / 2 }));
  }
  const at = Array.from(trace.x || []);
  return at.map((x, point) => ({ curve, point, subplot, x: axis.d2l ? axis.d2l(x) : x }))
    .filter(({ x, point }) => trace.y[point] != null && (trace.orientation === "h" || (x >= low && x <= high)));
}

function allPoints(state) {
  return (state.plot._fullData || []).flatMap((trace, curve) => {
    const read = trace.visible === true && trace.hoverinfo !== "skip" && ["heatmap", "scatter", "scattergl", "bar"].includes(trace.type);
    return read ? pointsOf(state, trace, curve) : [];
  });
}

function told(state) {
  const lines = [...state.plot.querySelectorAll(".hoverlayer text")].flatMap((text) => {
    const parts = [...text.querySelectorAll("tspan.line")];
    return (parts.length ? parts : [text]).map((part) => part.textContent.trim());
  });
  return [...new Set(lines)].filter(Boolean).join(", ");
}

function show(state, point, then = () => {}) {
  state.at = point;
  const { curve, subplot, xval, yval } = point;
  const where = xval == null ? { pointNumber: point.point } : { xval, yval };
  window.Plotly.Fx.hover(state.plot, [{ curveNumber: curve, ...where }], subplot);
  clearTimeout(state.telling);
  state.telling = setTimeout(() => {
    if (state.gone) return;
    state.said.classList.add("quiet"); // who sees reads it at the point
    state.said.textContent = told(state);
    then();
  }, HOVER_MS);
  return true;
}

const same = (a, b) => a && b && a.curve === b.curve && a.point === b.point;

function step(state, by) {
  const points = allPoints(state);
  if (!points.length) return false;
  const here = points.findIndex((point) => same(point, state.at));
  const next = here < 0 ? (by > 0 ? 0 : points.length - 1) : Math.min(points.length - 1, Math.max(0, here + by));
  return show(state, points[next]);
}

function series(state, by) {
  const points = allPoints(state);
  const curves = [...new Set(points.map((point) => point.curve))];
  if (curves.length < 2) return false;
  const next = curves[(curves.indexOf(state.at?.curve ?? curves[by > 0 ? curves.length - 1 : 0]) + by + curves.length) % curves.length];
  return show(state, points.find((point) => point.curve === next));
}

function press(state) {
  if (!state.at || !state.data.clicks) return false;
  // shown anew, for a refresh takes the hover away
  return show(state, state.at, () => {
    const point = state.plot._hoverdata?.[0];
    if (point) state.clicked(point);
  });
}

export function leave(state) {
  state.at = null;
  clearTimeout(state.telling);
  state.said.textContent = "";
  if (window.Plotly && state.plot._fullLayout) window.Plotly.Fx.unhover(state.plot);
}

// act: what the host does by itself: reset, table, save. Returns nothing; a key that means nothing here stays the page's.
export function onKey(event, state, act) {
  if (event.target !== state.plot || !state.figure || event.ctrlKey || event.metaKey || event.altKey) return;
  const share = event.shiftKey ? FAR : PAN;
  const many = event.shiftKey ? MANY : 1;
  const reset = () => (state.root.dataset.zoomed === "true" ? (act.reset(), true) : false);
  const meaning = {
    ArrowLeft: () => pan(state, -share), ArrowRight: () => pan(state, share),
    "+": () => zoom(state, ZOOM), "=": () => zoom(state, ZOOM), "-": () => zoom(state, 1 / ZOOM), _: () => zoom(state, 1 / ZOOM),
    0: reset, Escape: reset,
    ArrowUp: () => step(state, -many), ArrowDown: () => step(state, many),
    PageUp: () => series(state, -1), PageDown: () => series(state, 1),
    Enter: () => press(state), " ": () => press(state),
    t: act.table, s: act.save,
  };
  const done = meaning[event.key.length === 1 ? event.key.toLowerCase() : event.key]?.();
  if (!done) return;
  event.preventDefault();
  event.stopPropagation();
}
