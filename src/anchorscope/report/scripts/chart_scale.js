/* Where things lie in a chart: from layers and values to places on the sheet. Nothing here draws. */

const CHART_MARGIN = { left: 60, right: 16, top: 14, bottom: 46 };
const TITLE_ROOM = 26;
const MARK_ROW = 8; // height of a row of ticks for the reference layers, under the curves

/** Round numbers between low and high, about as many as wanted. */
function roundTicks(low, high, wanted, whole = false) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * span; k += 1) found.push(k * step);
  return found;
}

/** How many digits tell the ticks apart. */
function tickDigits(found) {
  if (found.length < 2) return 1;
  const step = Math.abs(found[1] - found[0]);
  return Math.max(0, Math.min(4, -Math.floor(Math.log10(step) + 1e-9)));
}

/** All places of a chart that is `width` pixels wide. */
function chartScale(spec, width) {
  const height = spec.height || Math.round(Math.min(460, Math.max(300, width * (width < 700 ? 0.68 : 0.46))));
  const top = CHART_MARGIN.top + (spec.title ? TITLE_ROOM : 0);
  const inner = {
    left: CHART_MARGIN.left,
    top,
    width: Math.max(40, width - CHART_MARGIN.left - CHART_MARGIN.right),
    height: Math.max(40, height - top - CHART_MARGIN.bottom),
  };
  const [low, high] = spec.yRange;
  const last = Math.max(0, spec.xMax);
  const room = spec.relative ? 0.015 : Math.max(0.3, 0.015 * last);
  const [from, to] = [-room, (spec.relative ? 1 : last) + room];
  const rows = Math.max(0, ...(spec.marks || []).map((mark) => (mark.row || 0) + 1));
  const foot = rows ? rows * MARK_ROW + 4 : 0;
  const depth = (layer, end) => (spec.relative ? (end > 0 ? layer / end : 0) : layer);
  return {
    width,
    height,
    inner,
    last,
    x: (layer, end = last) => ((depth(layer, end) - from) / (to - from)) * inner.width,
    range: [low, high],
    y: (value) => (inner.height - foot) * (1 - (value - low) / (high - low)),
    layerAt: (place) => {
      const position = from + (place / inner.width) * (to - from);
      return Math.max(0, Math.min(last, Math.round(spec.relative ? position * last : position)));
    },
    xTicks: (spec.relative ? [0, 0.2, 0.4, 0.6, 0.8, 1] : roundTicks(0, last, Math.min(10, inner.width / 56), true))
      .map((value) => ({ value, place: ((value - from) / (to - from)) * inner.width })),
    yTicks: roundTicks(low, high, Math.max(3, Math.min(8, inner.height / 34))),
  };
}
