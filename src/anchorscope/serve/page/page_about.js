/* What the detector was trained on and how good it is, from its card. */

const METRIC_NAMES = {
  auroc: "AUROC: how often a true answer scores above a false one (chance: 0.5)",
  ece: "Calibration error: how far its probabilities are off, on average (best: 0)",
  brier: "Brier score: mean squared error of its probabilities (best: 0)",
  "accuracy@80": "Share of true answers among the 80% that it trusts most",
};

function interval(row) {
  const known = Number.isFinite(row.ci_low) && Number.isFinite(row.ci_high);
  return known ? `${shownNumber(row.ci_low, 2)} to ${shownNumber(row.ci_high, 2)}` : "–";
}

/** A table; of the leading `texts` columns each holds words. Roles are said once more: a phone lays rows out as grids, and
 * what is no table to the eye would be none to a screen reader. */
function table(heads, rows, caption, texts = 1, look = "") {
  const cells = (values, kind) => values.map((value, i) => element(kind, { class: i < texts ? "words" : "number",
    ...(kind === "th" ? { scope: "col", role: "columnheader" } : { role: "cell" }) }, value));
  const line = (values, kind) => element("tr", { role: "row" }, cells(values, kind));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", { role: "table", ...(look ? { class: look } : {}) }, element("caption", {}, caption),
      element("thead", { role: "rowgroup" }, line(heads, "th")),
      element("tbody", { role: "rowgroup" }, rows.map((row) => line(row, "td")))));
}

function qualityTable(detector) {
  const wanted = (detector.quality || []).filter((row) => row.metric in METRIC_NAMES && (row.prevalence || "balanced") === (row.metric === "auroc" ? "balanced" : "natural"));
  const rows = wanted.map((row) => [METRIC_NAMES[row.metric], row.test === row.train ? row.test || "–" : `${row.test} (trained on ${row.train})`,
    shownNumber(row.value, 2), interval(row), String(row.n)]);
  if (!rows.length) return element("p", { class: "small" }, "This bundle holds no measured quality (it was fitted without a comparison).");
  return table(["Measure", "Tested on", "Value", "95% interval", "Answers"], rows, "Measured quality", 2, "stacked");
}

function calibrationTable(detector) {
  const rows = (detector.calibration || []).map((row) =>
    [`${shownNumber(100 * row.low, 0)}–${percent(row.high)}`, percent(row.true), String(row.n)]);
  if (!rows.length) return null;
  return table(["Probability given", "True in testing", "Answers"], rows, "Its probabilities, and the share that was true");
}

/** Fills the section. */
function aboutDetector(node, detector) {
  const facts = [["Model", detector.model], ["Detector", detector.id], ["Trained on", detector.data],
    ["Reads", `${detector.position} token, ${detector.prompt} prompt`], ["sha256", detector.sha256]];
  const told = facts.filter(([, value]) => value).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, String(value))]);
  const limits = (detector.limits || []).map((one) => element("li", {}, one));
  const tables = [qualityTable(detector), calibrationTable(detector)].filter(Boolean);
  node.replaceChildren(element("dl", {}, told), ...tables,
    ...(limits.length ? [element("h3", {}, "What it cannot do"), element("ul", {}, limits)] : []));
}
