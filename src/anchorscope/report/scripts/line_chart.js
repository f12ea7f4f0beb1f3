/* The one chart of the page: lines over layers with bands, a crosshair, and a readout of all values at a layer.
 *
 * lineChart(node, spec) draws into the node and returns {update(spec), emphasise(entry), svg, spec()}.
 * spec = {
 *   title?, xLabel, yLabel, label?        label: what is shown, for those who cannot see it
 *   xMax                                  the last layer
 *   relative?                             x runs from 0 to 1, so that models of any depth lie over each other
 *   yRange: [low, high], level            level: the height at which nothing happens, with a line
 *   bands?                                draw the intervals
 *   marks?: [{x, colour, row?}]           ticks at the foot, such as reference layers
 *   series: [{id, name, colour, dash?, marker?, open?, width?, values, low?, high?, quiet?, few?, entry?, bundle?,
 *             point?, record?}]
 *                                         values by layer, null where there is none; lines that are quiet or rest on
 *                                         few items have no band; many lines of the same `bundle` are one row of the
 *                                         readout, with their range; `entry`: by which emphasise() finds the line;
 *                                         `point`: a layer whose value is ringed
 *   format?                               how a value is written: a function, else one digit
 *   empty?, height?
 * }
 * Pointer, touch and keyboard (arrows, Page Up/Down, Home, End, Escape) move the same cursor. A click on a line that
 * has items shows them. */

function lineChart(node, firstSpec) {
  const svg = drawn("svg", { class: "lines", "aria-hidden": "true", preserveAspectRatio: "xMidYMid meet" });
  const readout = element("div", { class: "readout", role: "status", "aria-live": "polite", hidden: true });
  const frame = element("div", {
    class: "chart", tabindex: "0", role: "application", "aria-roledescription": "line chart",
  }, svg, readout);
  node.replaceChildren(frame);
  const state = { spec: firstSpec, scale: null, cursor: null, near: null, emphasis: null, overlay: null };

  function redraw() {
    const width = Math.floor(frame.clientWidth);
    if (width < 40) return; // folded away: it is drawn when it is opened
    state.scale = chartScale(state.spec, width);
    drawSheet(svg, state.spec, state.scale);
    state.overlay = svg.querySelector(".overlay");
    frame.setAttribute("aria-label", chartLabel(state.spec));
    if (state.cursor !== null) state.cursor = Math.min(state.cursor, state.scale.last);
    moveTo(state.cursor, state.near);
    markEmphasis();
  }

  function moveTo(cursor, near = null) {
    state.cursor = cursor;
    state.near = near;
    if (!state.scale) return;
    drawCursor(state.overlay, state.spec, state.scale, cursor);
    fillReadout(readout, state.spec, state.scale, cursor, near);
  }

  function markEmphasis() {
    for (const line of svg.querySelectorAll(".series, .band")) {
      line.classList.toggle("faded", state.emphasis !== null && line.dataset.entry !== state.emphasis);
    }
  }

  function followPointer(event) {
    if (!state.scale) return;
    const box = svg.getBoundingClientRect();
    const unit = state.scale.width / box.width; // the sheet may be shown smaller than it was drawn
    const x = (event.clientX - box.left) * unit - state.scale.inner.left;
    const y = (event.clientY - box.top) * unit - state.scale.inner.top;
    const layer = state.scale.layerAt(x);
    const near = nearestSeries(state.spec, state.scale, layer, y);
    svg.classList.toggle("on-line", Boolean(near && hasItems(near)));
    moveTo(layer, near && near.id);
    return near;
  }

  const hasItems = ({ quiet, record = {}, far }) => !quiet && record.group && far < 8 && hasExplorer();

  svg.addEventListener("pointermove", followPointer);
  svg.addEventListener("pointerdown", followPointer);
  svg.addEventListener("click", (event) => {
    const near = event.pointerType === "mouse" && followPointer(event);
    if (near && hasItems(near)) showItems(near.record);
  });
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && moveTo(null));
  frame.addEventListener("keydown", (event) => {
    const target = state.scale && cursorAfter(event.key, state.cursor, state.scale.last);
    if (target === undefined || target === false || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moveTo(target);
  });
  frame.addEventListener("blur", () => moveTo(null));
  new ResizeObserver(() => {
    if (!state.scale || Math.floor(frame.clientWidth) !== state.scale.width) redraw();
  }).observe(frame);
  redraw();
  return {
    svg,
    spec: () => state.spec,
    update(spec) {
      state.spec = spec;
      redraw();
    },
    emphasise(entry) {
      state.emphasis = entry;
      markEmphasis();
    },
  };
}

/** Where a key moves the cursor; undefined for keys that mean nothing here, null to take it away. */
function cursorAfter(key, cursor, last) {
  const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5 };
  if (key === "Home") return 0;
  if (key === "End") return last;
  if (key === "Escape") return cursor === null ? undefined : null;
  if (!(key in steps)) return undefined;
  if (cursor === null) return steps[key] > 0 ? 0 : last;
  return Math.max(0, Math.min(last, cursor + steps[key]));
}

function chartLabel(spec) {
  const what = spec.label || [spec.title, `${spec.yLabel} by ${spec.xLabel}`].filter(Boolean).join(": ");
  return `${what}. ${spec.series.length} lines. Use the arrow keys to read the values at each layer.`;
}

/** Everything but the cursor. */
function drawSheet(svg, spec, scale) {
  const { inner } = scale;
  svg.setAttribute("viewBox", `0 0 ${scale.width} ${scale.height}`);
  const plot = drawn("svg", { x: inner.left, y: inner.top, width: inner.width, height: inner.height, class: "plot" });
  const axes = drawn("g", { transform: `translate(${inner.left},${inner.top})`, class: "axes" });
  drawAxes(axes, spec, scale);
  const level = scale.y(spec.level);
  plot.append(drawn("line", { class: "level", x1: 0, x2: inner.width, y1: level, y2: level }));
  drawMarks(plot, spec, scale);
  const quietFirst = [...spec.series].sort((a, b) => Number(Boolean(b.quiet)) - Number(Boolean(a.quiet)));
  if (spec.bands) {
    for (const series of quietFirst.filter((one) => !one.quiet && !one.few)) {
      plot.append(drawn("path", {
        class: "band", "data-series": series.id, "data-entry": series.entry, d: bandPath(scale, series),
        "--c": series.colour,
      }));
    }
  }
  quietFirst.forEach((series, number) => plot.append(seriesLine(scale, series, number)));
  const write = spec.format || ((value) => shownNumber(value));
  for (const one of quietFirst) plot.append(...beyondMarks(scale, one, write), ...pointRing(scale, one, write));
  if (!spec.series.length) {
    const middle = { class: "empty", x: inner.width / 2, y: inner.height / 2 };
    plot.append(drawn("text", middle, spec.empty || "nothing to show"));
  }
  const overlay = drawn("g", { class: "overlay", transform: `translate(${inner.left},${inner.top})` });
  const title = spec.title ? chartTitle(spec.title, scale.width) : null;
  svg.replaceChildren(...[title, axes, plot, overlay].filter(Boolean));
}

function chartTitle(text, width) {
  return drawn("text", { class: "title", x: width / 2, y: 20 }, ...fitted(text, width - 20, 9));
}

/** A text that must stay on one line: where it is too long its middle is left out, and told when it is pointed at. */
function fitted(text, width, letterWidth) {
  const letters = [...text];
  const room = Math.max(8, Math.floor(width / letterWidth));
  if (letters.length <= room) return [text];
  const half = Math.floor((room - 1) / 2);
  return [`${letters.slice(0, half).join("")}…${letters.slice(-half).join("")}`, drawn("title", {}, text)];
}

function drawAxes(axes, spec, scale) {
  const { inner } = scale;
  const digits = tickDigits(scale.yTicks);
  for (const value of scale.yTicks) {
    const y = scale.y(value);
    axes.append(drawn("line", { class: "grid", x1: 0, x2: inner.width, y1: y, y2: y }));
    axes.append(drawn("text", { class: "tick y", x: -9, y }, shownNumber(value, digits)));
  }
  axes.append(drawn("line", { class: "axis", x1: 0, x2: inner.width, y1: inner.height, y2: inner.height }));
  for (const { place: x, value } of scale.xTicks) {
    axes.append(drawn("line", { class: "axis", x1: x, x2: x, y1: inner.height, y2: inner.height + 4 }));
    axes.append(drawn("text", { class: "tick x", x, y: inner.height + 17 }, spec.relative ? value.toFixed(1) : value));
  }
  axes.append(drawn("text", { class: "label x", x: inner.width / 2, y: inner.height + 38 }, spec.xLabel));
  const upright = `translate(-46,${inner.height / 2}) rotate(-90)`;
  axes.append(drawn("text", { class: "label y", transform: upright }, spec.yLabel));
}

function drawMarks(plot, spec, scale) {
  for (const mark of spec.marks || []) {
    const x = scale.x(mark.x);
    plot.append(drawn("line", { class: "mark-line", x1: x, x2: x, y1: 0, y2: scale.inner.height, "--c": mark.colour }));
    const foot = scale.inner.height - (mark.row || 0) * MARK_ROW;
    plot.append(drawn("line", { class: "mark", x1: x, x2: x, y1: foot - MARK_ROW + 1, y2: foot, "--c": mark.colour }));
  }
}
