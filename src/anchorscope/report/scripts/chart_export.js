/* Taking a chart along: as SVG that stands alone, with its legend and in the colours of paper, and as CSV. */

const SHEET_WIDTH = 860;
const KEPT_STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap",
  "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline",
];

const NOT_INHERITED = { opacity: "1", "dominant-baseline": "auto" }; // with the value that means nothing

/** The chart of a spec as the text of an SVG file. */
function standaloneSvg(spec, title) {
  const sheet = drawn("svg", { class: "lines", xmlns: SVG_SPACE });
  const desk = element("div", { class: "on-paper off-screen" }, sheet);
  document.body.append(desk);
  const scale = chartScale({ ...spec, title }, SHEET_WIDTH);
  drawSheet(sheet, { ...spec, title }, scale);
  const height = appendLegend(sheet, legendEntries(spec.series), scale.height + 8);
  sheet.setAttribute("viewBox", `0 0 ${SHEET_WIDTH} ${height}`);
  sheet.setAttribute("width", SHEET_WIDTH);
  sheet.setAttribute("height", height);
  sheet.prepend(drawn("rect", { width: SHEET_WIDTH, height, class: "sheet" }));
  for (const node of sheet.querySelectorAll("*")) freezeStyle(node, node.parentNode === sheet ? null : node.parentNode);
  for (const node of sheet.querySelectorAll("*")) for (const name of ["class", "style"]) node.removeAttribute(name);
  sheet.removeAttribute("class");
  const text = new XMLSerializer().serializeToString(sheet);
  desk.remove();
  return `<?xml version="1.0" encoding="UTF-8"?>\n${text}\n`;
}

/** Loud lines first; the lines of a bundle share one entry. */
function legendEntries(series) {
  const bundles = new Map(series.filter((one) => one.bundle).map((one) => [one.bundle, { ...one, name: one.bundle }]));
  return [...series.filter((one) => !one.bundle), ...bundles.values()];
}

function appendLegend(sheet, series, top) {
  const columns = 3;
  series.forEach((one, i) => {
    const x = CHART_MARGIN.left + (i % columns) * ((SHEET_WIDTH - CHART_MARGIN.left) / columns);
    const y = top + Math.floor(i / columns) * 20;
    const sample = lineSample(one);
    sample.setAttribute("x", x);
    sample.setAttribute("y", y);
    sheet.append(sample, drawn("text", { class: "key", x: x + 42, y: y + 7 }, one.name));
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

/** What a chart shows, one row per point; `record` of a series holds the columns that name it. */
function chartCsv(spec, valueName) {
  const names = [...new Set(spec.series.flatMap((series) => Object.keys(series.record || { series: series.name })))];
  const lines = [[...names, "layer", valueName, "ci_low", "ci_high"]];
  for (const series of spec.series) {
    const record = series.record || { series: series.name };
    series.values.forEach((value, layer) => {
      if (!Number.isFinite(value)) return;
      const ends = [series.low, series.high].map((list) => (list && Number.isFinite(list[layer]) ? list[layer] : ""));
      lines.push([...names.map((name) => record[name] ?? ""), layer, value, ...ends]);
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

/** The two buttons under a chart. `current` gives {spec, title, name, valueName} of what is shown. */
function exportButtons(current) {
  return element("span", { class: "exports" },
    pushButton("Download SVG", () => {
      const { spec, title, name } = current();
      downloadText(`${name}.svg`, "image/svg+xml", standaloneSvg(spec, title));
    }),
    pushButton("Copy CSV", () => {
      const { spec, name, valueName } = current();
      copyText(chartCsv(spec, valueName), `${name}.csv`);
    }));
}
