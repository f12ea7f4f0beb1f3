/* AUC per layer: probes of all sites beside everything simpler that could do the same, and what survives the cuts. */

const SITE_LOOKS = {
  attention: { colour: "#ff7f0e", marker: "s" },
  mlp: { colour: "#1f77b4", marker: "o" },
  residual: { colour: "#2ca02c", marker: "^" },
};
const OTHER_SITE = { colour: "#17becf", marker: "D" };
const BASELINE_LOOKS = {
  "relation-only": { colour: "#7f7f7f", dash: "1.5 3" },
  words: { colour: "#8c564b", dash: "8 3" },
  "confidence-mean": { colour: "#9467bd", dash: "8 3 1.5 3" },
  "confidence-min": { colour: "#e377c2", dash: "5 2 1.5 2 1.5 2" },
};
const SURVIVING_LINES = [
  ["u", "Untouched", "clean", "transfer", { colour: "var(--ink)" }],
  ["r", "Random tokens cut, same probe", "random", "transfer", { colour: "#7a7a7a", dash: "1.5 3", quiet: true }],
  ["s", "Question cut, same probe", "knockout", "transfer", { colour: "#d62728", marker: "o" }],
  ["t", "Question cut, probe trained again", "knockout", "refit", { colour: "#2ca02c", dash: "8 3", marker: "s" }],
];

/** A finder for AUC curves by dataset, intervention, kind, site and position. */
function scoreBook(data) {
  const book = new Map();
  for (const [dataset, cut, kind, site, position, n, ...lists] of data.scores.rows) {
    book.set([dataset, cut, kind, site, position].join("\u0000"), { n, ...unpacked(lists, data.scores.scale) });
  }
  return (...key) => book.get(key.join("\u0000"));
}

/** Probes of all sites, and the baselines as level lines. */
function probeLines(data, find, view) {
  const about = (name) => ({ dataset: view.dataset, position: view.position, line: name });
  const line = (id, name, look, found) => ({ id, name, record: about(name), ...look, ...found });
  const lines = data.sites.flatMap((site, i) => {
    const found = find(view.dataset, "clean", "transfer", site, view.position);
    return found ? [line(`p${i}`, `Probe at ${site}`, SITE_LOOKS[site] || OTHER_SITE, found)] : [];
  });
  const within = find(view.dataset, "clean", "within-relation", data.site, view.position);
  const dashed = { colour: "var(--ink)", dash: "3 2", quiet: true };
  if (within) lines.push(line("w", `Probe at ${data.site}, within relations`, dashed, within));
  const mine = data.baselines.filter(([dataset]) => dataset === view.dataset);
  mine.forEach(([, kind, words, ...numbers], i) => {
    const level = unpacked(numbers.map((value) => Array(data.layers).fill(value)), data.scores.scale);
    const look = BASELINE_LOOKS[kind] || { colour: "#777777", dash: "4 4" };
    lines.push(line(`b${i}`, `Baseline: ${words}`, { ...look, quiet: true, width: 1.6 }, level));
  });
  return lines;
}

/** One site's probe before and after the cuts. */
function survivingLines(find, view) {
  return SURVIVING_LINES.flatMap(([id, name, cut, kind, look]) => {
    const found = find(view.dataset, cut, kind, view.site, view.position);
    const record = { dataset: view.dataset, site: view.site, position: view.position, line: name };
    return found ? [{ id, name, record, ...look, ...found }] : [];
  });
}

function scoreView(node, data, { prefix, name, words, sites, linesOf }) {
  const options = (values) => values.map((value) => ({ value, name: value }));
  const datasets = data.datasets.map((dataset) => [dataset.id, dataset.name]);
  const title = (view) => `${words}, ${(datasets.find(([id]) => id === view.dataset) || [0, view.dataset])[1]}`;
  chartView(node, {
    prefix,
    start: { dataset: datasets[0][0], site: data.site, position: data.position, bands: "1", depth: "0", hide: "" },
    controls: [
      { name: "dataset", label: "Dataset", options: namedOptions(datasets) },
      { name: "site", label: "Site", options: options(sites) },
      { name: "position", label: "Position", options: options(data.positions) },
      { name: "bands", label: "95 % bands", flag: true },
      { name: "depth", label: "Relative depth", title: "Layers as a share of the model's depth", flag: true },
    ],
    specs: (view) => [{
      xLabel: view.depth === "1" ? "Relative depth" : "Layer",
      yLabel: "AUC",
      label: title(view),
      xMax: data.layers - 1,
      relative: view.depth === "1",
      bands: view.bands === "1",
      level: 0.5,
      series: linesOf(view),
      format: (value) => shownNumber(value, 3),
      empty: "No scores for this choice.",
    }],
    file: (view) => ({ title: `${data.model}: ${title(view)}`, name, valueName: "auc" }),
  });
}

for (const node of document.querySelectorAll("#probe-view, #surviving-view")) {
  const data = pageData("chart-data");
  if (!data || !data.scores.rows.length || !data.datasets.length) continue;
  const find = scoreBook(data);
  const plans = {
    "probe-view": {
      prefix: "auc", name: "probe_auc", words: "telling true from false answers", sites: [],
      linesOf: (view) => probeLines(data, find, view),
    },
    "surviving-view": {
      prefix: "sig", name: "surviving_signal", words: "what survives the cut", sites: data.sites,
      linesOf: (view) => survivingLines(find, view),
    },
  };
  scoreView(node, data, plans[node.id]);
}
