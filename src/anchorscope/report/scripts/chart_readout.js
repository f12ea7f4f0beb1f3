/* What a chart says at one layer: the crosshair with a dot on every line, and the table of all values there. */

const MOST_OF_A_BUNDLE = 3;

/** The index of a series' value at the cursor; under relative depth a shorter series is asked at the same depth. */
function indexAt(spec, scale, series, cursor) {
  const end = series.values.length - 1;
  return spec.relative && scale.last > 0 ? Math.round((cursor / scale.last) * end) : cursor;
}

/** The line nearest to a height at the cursor, with how far it is; null where none is near. */
function nearestSeries(spec, scale, cursor, y) {
  let best = null;
  for (const series of spec.series) {
    const value = series.values[indexAt(spec, scale, series, cursor)];
    if (!Number.isFinite(value)) continue;
    const far = Math.abs(scale.y(value) - y);
    if (far < 26 && (!best || far < best.far)) best = { ...series, far };
  }
  return best;
}

function drawCursor(overlay, spec, scale, cursor) {
  overlay.replaceChildren();
  if (cursor === null) return;
  const x = scale.x(cursor);
  overlay.append(drawn("line", { class: "crosshair", x1: x, x2: x, y1: 0, y2: scale.inner.height }));
  for (const series of spec.series) {
    const value = series.values[indexAt(spec, scale, series, cursor)];
    if (!Number.isFinite(value)) continue;
    const y = scale.y(value);
    if (y < 0 || y > scale.inner.height) continue;
    overlay.append(drawn("circle", { class: "dot", cx: x, cy: y, r: series.quiet ? 2.4 : 3.6, "--c": series.colour }));
  }
}

/** All values at the cursor, highest first, quiet lines last. */
function readings(spec, scale, cursor) {
  const write = spec.format || ((value) => shownNumber(value));
  return spec.series
    .map((series) => {
      const i = indexAt(spec, scale, series, cursor);
      const [low, high] = [series.low, series.high].map((list) => (list ? list[i] : null));
      const known = !series.few && Number.isFinite(low) && Number.isFinite(high);
      const interval = known ? `[${write(low)}, ${write(high)}]` : "";
      return { series, value: series.values[i], text: write(series.values[i]), interval };
    })
    .filter((row) => Number.isFinite(row.value))
    .sort((a, b) => Number(Boolean(a.series.quiet)) - Number(Boolean(b.series.quiet)) || b.value - a.value);
}

/** Rows of the readout; more than a few lines of one bundle are told by their range. */
function bundled(rows) {
  const sizes = new Map();
  for (const { series } of rows) if (series.bundle) sizes.set(series.bundle, (sizes.get(series.bundle) || 0) + 1);
  const told = new Set();
  return rows.flatMap((row) => {
    const { bundle } = row.series;
    if (!bundle || sizes.get(bundle) <= MOST_OF_A_BUNDLE) return [row];
    if (told.has(bundle)) return [];
    told.add(bundle);
    const all = rows.filter(({ series }) => series.bundle === bundle); // highest first
    const range = `${all[all.length - 1].text} … ${all[0].text}`;
    return [{ series: { ...row.series, name: `${bundle}, ${all.length} lines` }, text: "", interval: range }];
  });
}

function fillReadout(readout, spec, scale, cursor, near) {
  readout.hidden = cursor === null;
  if (cursor === null) return readout.replaceChildren();
  const depth = scale.last > 0 ? cursor / scale.last : 0;
  const rows = bundled(readings(spec, scale, cursor)).map(({ series, text, interval }) =>
    element("tr", { class: series.id === near ? "near" : series.quiet && "quiet", "data-series": series.id },
      element("td", { class: "key" }, lineSample(series)), element("th", { scope: "row" }, series.name),
      element("td", { class: "value" }, text), element("td", { class: "interval" }, interval)));
  readout.replaceChildren(
    element("p", { class: "where" }, `Layer ${cursor}`, element("span", {}, ` depth ${depth.toFixed(2)}`)),
    element("table", {}, element("tbody", {}, rows)),
  );
  return undefined;
}
