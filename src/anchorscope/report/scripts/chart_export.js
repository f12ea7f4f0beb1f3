/* Taking charts along: as SVG that stands alone, with its legend and in the colours of paper, and as CSV. */

const SHEET_WIDTH = 860; // of one chart; panels that stand side by side are half as wide
const KEPT_STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap",
  "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline",
];

const NOT_IN_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu; // a name may hold anything

const NOT_INHERITED = { opacity: "1", "dominant-baseline": "auto" }; // with the value that means nothing

/** The charts of these specs, side by side with one legend, as the text of an SVG file. */
function standaloneSvg(specs, title) {
  const columns = panelColumns(specs.length);
  const width = columns > 1 ? SHEET_WIDTH / 2 : SHEET_WIDTH;
  const whole = width * columns;
  const sheet = drawn("svg", { class: "lines", xmlns: SVG_SPACE });
  const desk = element("div", { class: "on-paper off-screen" }, sheet);
  document.body.append(desk);
  sheet.append(chartTitle(title, whole));
  let bottom = 0;
  specs.forEach((spec, i) => {
    const scale = chartScale(spec, width);
    const [x, y] = [(i % columns) * width, TITLE_ROOM + Math.floor(i / columns) * scale.height];
    const panel = drawn("svg", { x, y, width, height: scale.height });
    drawSheet(panel, spec, scale);
    sheet.append(panel);
    bottom = y + scale.height;
  });
  const height = appendLegend(sheet, sheetLegend(specs.flatMap((spec) => spec.series)), bottom + 8, whole);
  sheet.setAttribute("viewBox", `0 0 ${whole} ${height}`);
  sheet.setAttribute("width", whole);
  sheet.setAttribute("height", height);
  sheet.prepend(drawn("rect", { width: whole, height, class: "sheet" }));
  for (const node of sheet.querySelectorAll("*")) freezeStyle(node, node.parentNode === sheet ? null : node.parentNode);
  for (const node of sheet.querySelectorAll("*")) for (const name of ["class", "style"]) node.removeAttribute(name);
  sheet.removeAttribute("class");
  const text = new XMLSerializer().serializeToString(sheet).replace(NOT_IN_XML, "\ufffd");
  desk.remove();
  return `<?xml version="1.0" encoding="UTF-8"?>\n${text}\n`;
}

/** Every line once, loud ones first; the lines of a bundle share one entry. */
function sheetLegend(series) {
  const single = new Map(series.filter((one) => !one.bundle).map((one) => [one.id, one]));
  const bundles = new Map(series.filter((one) => one.bundle).map((one) => [one.bundle, { ...one, name: one.bundle }]));
  return [...single.values(), ...bundles.values()];
}

function appendLegend(sheet, series, top, width) {
  const columns = width > SHEET_WIDTH ? 4 : 3;
  const room = (width - CHART_MARGIN.left) / columns;
  series.forEach((one, i) => {
    const x = CHART_MARGIN.left + (i % columns) * room;
    const y = top + Math.floor(i / columns) * 20;
    const sample = lineSample(one);
    sample.setAttribute("x", x);
    sample.setAttribute("y", y);
    sheet.append(sample, drawn("text", { class: "key", x: x + 42, y: y + 7 }, ...fitted(one.name, room - 50, 7)));
  });
  return top + Math.ceil(series.length / columns) * 20 + 8;
}

/** What the style sheet says of a node, written onto the node: the file has no style sheet. What a node has from the
 * one above it, or by itself, is left out. */
function freezeStyle(node, above) {
  const mine = getComputedStyle(node);
  const theirs = above && getComputedStyle(above);
  for (const name of KEPT_STYLES) {
    const value = mine.getPropertyValue(name);
    const idle = name in NOT_INHERITED ? NOT_INHERITED[name] : theirs && theirs.getPropertyValue(name);
    if (value && value !== idle) node.setAttribute(name, value);
  }
}

/** What is shown, one row per point; `record` of a series holds the columns that name it. */
function chartCsv(specs, valueName) {
  const shown = specs.flatMap((spec) => spec.series);
  const names = [...new Set(shown.flatMap((series) => Object.keys(series.record)))];
  const lines = [[...names, "layer", valueName, "ci_low", "ci_high"]];
  for (const series of shown) {
    series.values.forEach((value, layer) => {
      if (!Number.isFinite(value)) return;
      const ends = [series.low, series.high].map((list) => (list && Number.isFinite(list[layer]) ? list[layer] : ""));
      lines.push([...names.map((name) => series.record[name] ?? ""), layer, value, ...ends]);
    });
  }
  return lines.map((cells) => cells.map(csvCell).join(",")).join("\n") + "\n";
}

function csvCell(value) {
  const text = String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Hand a text to the reader as a file. */
function downloadText(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Put a text on the clipboard; where that is forbidden it comes as a file. */
async function copyText(text, name) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied.");
  } catch {
    downloadText(name, "text/csv", text);
    announce("This browser does not allow copying here: saved as a file.");
  }
}

/** The two buttons under a chart. `current` gives {specs, title, name, valueName} of what is shown. */
function exportButtons(current) {
  return element("span", { class: "exports" },
    pushButton("Download SVG", () => {
      const { specs, title, name } = current();
      downloadText(`${name}.svg`, "image/svg+xml", standaloneSvg(specs, title));
    }),
    pushButton("Copy CSV", () => {
      const { specs, name, valueName } = current();
      copyText(chartCsv(specs, valueName), `${name}.csv`);
    }));
}
