/* The strokes of a chart: lines with gaps, bands, markers, and the short sample of a line that a legend shows.
 * A line's colour lies in the variable --c; the style sheet makes it brighter on a dark page. */

const MARKER_SHAPES = {
  o: "M-3.4,0a3.4,3.4 0 1,0 6.8,0a3.4,3.4 0 1,0 -6.8,0z",
  s: "M-3,-3h6v6h-6z",
  "^": "M0,-3.8L3.7,3H-3.7z",
  v: "M0,3.8L3.7,-3H-3.7z",
  "<": "M-3.8,0L3,-3.7V3.7z",
  ">": "M3.8,0L-3,-3.7V3.7z",
  D: "M0,-4.2L4.2,0L0,4.2L-4.2,0z",
  P: "M-1.3,-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z",
  X: "M-3.6,-1.8L-1.8,-3.6L0,-1.8L1.8,-3.6L3.6,-1.8L1.8,0L3.6,1.8L1.8,3.6L0,1.8L-1.8,3.6L-3.6,1.8L-1.8,0z",
};

/** Runs of consecutive indices at which every list has a number. */
function wholeStretches(lists) {
  const stretches = [];
  let open = null;
  for (let i = 0; i < lists[0].length; i += 1) {
    if (lists.every((list) => Number.isFinite(list[i]))) {
      if (!open) stretches.push((open = []));
      open.push(i);
    } else open = null;
  }
  return stretches;
}

function place(scale, series, layer, value) {
  return `${scale.x(layer, series.values.length - 1).toFixed(1)},${scale.y(value).toFixed(1)}`;
}

/** The path of a line; where a value is missing the line is broken, and a lone point is drawn as a dot. */
function linePath(scale, series) {
  return wholeStretches([series.values])
    .map((run) => {
      const points = run.map((i) => place(scale, series, i, series.values[i]));
      return points.length === 1 ? `M${points[0]}h0.01` : `M${points.join("L")}`;
    })
    .join("");
}

/** The path around an interval. */
function bandPath(scale, series) {
  if (!series.low || !series.high) return "";
  return wholeStretches([series.low, series.high])
    .map((run) => {
      const there = run.map((i) => place(scale, series, i, series.high[i]));
      const back = [...run].reverse().map((i) => place(scale, series, i, series.low[i]));
      return `M${[...there, ...back].join("L")}Z`;
    })
    .join("");
}

/** A line with its markers. Every series starts its markers at another layer, so that they do not cover each other. */
function seriesLine(scale, series, number) {
  const group = drawn("g", {
    class: series.quiet ? "series quiet" : "series", "data-series": series.id, "data-entry": series.entry,
    "--c": series.colour,
  });
  group.append(drawn("path", {
    class: "line", d: linePath(scale, series), fill: "none", "stroke-dasharray": series.dash || null,
    "stroke-width": series.width || (series.quiet ? 1.3 : 2),
  }));
  if (series.marker && MARKER_SHAPES[series.marker]) {
    const every = Math.max(1, Math.round(series.values.length / 8));
    for (let i = number % every; i < series.values.length; i += every) {
      if (Number.isFinite(series.values[i])) group.append(markerAt(series, place(scale, series, i, series.values[i])));
    }
  }
  return group;
}

function markerAt(series, where) {
  return drawn("path", {
    class: series.open ? "marker open" : "marker", d: MARKER_SHAPES[series.marker], transform: `translate(${where})`,
  });
}

/** Small arrows at the edge where a line leaves the axis, one per stretch; pointed at, they tell the farthest value. */
function beyondMarks(scale, series, write) {
  const [low, high] = scale.range;
  const outside = [[high, 1, "M-4,5L0,-1L4,5z"], [low, -1, "M-4,-5L0,1L4,-5z"]];
  return outside.flatMap(([edge, sign, shape]) => {
    const beyond = series.values.map((value) => (Number.isFinite(value) && sign * (value - edge) > 0 ? value : null));
    return wholeStretches([beyond]).map((run) => {
      const far = run.reduce((best, i) => (sign * (beyond[i] - beyond[best]) > 0 ? i : best), run[0]);
      return drawn("path", {
        class: "beyond", d: shape, transform: `translate(${place(scale, series, far, edge)})`, "--c": series.colour,
        "data-entry": series.entry,
      }, drawn("title", {}, `${series.name}: ${write(beyond[far])} at layer ${far}`));
    });
  });
}

/** The point whose number the text quotes; pointed at, it tells it. */
function pointRing(scale, series, write) {
  const i = series.point;
  if (!Number.isInteger(i) || !Number.isFinite(series.values[i])) return [];
  const interval = !series.few && Number.isFinite(series.low?.[i]) && Number.isFinite(series.high?.[i])
    ? ` [${write(series.low[i])}, ${write(series.high[i])}]` : "";
  const where = { transform: `translate(${place(scale, series, i, series.values[i])})`, "data-entry": series.entry };
  return [drawn("circle", { class: "ring", r: 5, "data-series": series.id, "--c": series.colour, ...where },
    drawn("title", {}, `${series.name}: ${write(series.values[i])}${interval} at layer ${i}`))];
}

/** A tick or a ringed point, as a legend shows it. */
function keySample(kind) {
  const shape = kind === "tick"
    ? drawn("line", { class: "mark", x1: 17, x2: 17, y1: 2, y2: 12, "--c": "var(--ink)" })
    : drawn("circle", { class: "ring", cx: 17, cy: 7, r: 5, "--c": "var(--ink)" });
  return drawn("svg", { class: "sample", width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" }, shape);
}

/** A short piece of a line with its marker, as a legend shows it. */
function lineSample(series) {
  const group = drawn("g", { class: "series", "--c": series.colour });
  group.append(drawn("path", {
    class: "line", d: "M1,7H33", "stroke-dasharray": series.dash || null, "stroke-width": series.width || 2,
  }));
  if (series.marker && MARKER_SHAPES[series.marker]) group.append(markerAt(series, "17,7"));
  return drawn("svg", { class: "sample", width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" }, group);
}
