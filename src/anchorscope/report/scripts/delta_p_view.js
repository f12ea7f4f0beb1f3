/* The ΔP chart with everything that can be asked of it: rule, site, position, intervention, truth, and which lines. */

const RANDOM_LINE = { id: "random", name: "Random tokens cut instead", colour: "#7a7a7a", dash: "1.5 3" };
const PROBES = [["same", "the untouched model's probe"], ["again", "a probe trained again on cut states"]];

/** The curves of the page's data, found by what they are about. */
function curveBook(data) {
  const book = new Map();
  const keyOf = (...parts) => parts.join("\u0000");
  for (const [dataset, site, position, cut, probe, rule, group, truth, n, ...lists] of data.curves.rows) {
    const found = { n, ...unpacked(lists, data.curves.scale) };
    book.set(keyOf(dataset, site, position, cut, probe, rule, group, truth), found);
  }
  const find = (dataset, group, { site, position, cut, probe, rule, truth }) =>
    book.get(keyOf(dataset, site, position, cut, probe, rule, group, truth));
  /** Whether any dataset and group has a curve for these choices. */
  const has = (view) => data.datasets.some(({ id }) => data.groups.some((group) => find(id, group, view)));
  return { find, has };
}

function deltaPView(node, data) {
  const book = curveBook(data);
  const rules = data.rules.map(([rule]) => rule);
  const lists = {
    rule: rules, cut: data.interventions.map(([cut]) => cut), truth: data.truths.map(([truth]) => truth),
    site: data.sites, position: data.positions, probe: PROBES.map(([probe]) => probe),
  };
  const measured = (view) => {
    const order = view.rule === "retained" ? ["again", "same"] : ["same", "again"];
    return [view.probe, ...order].find((probe) => book.has({ ...view, probe })) || order[0];
  };
  chartView(node, {
    prefix: "dp",
    start: {
      rule: rules.includes("plain") ? "plain" : rules[0], cut: "knockout", truth: "all", site: data.site,
      position: data.position, probe: "", bands: "1", random: "1", depth: "0", hide: "",
    },
    controls: deltaPChoices(data),
    settle: (view) => ({ ...view, measured: measured(view) }),
    specs: (view) => [deltaPSpec(data, book, view)],
    shown: (name, view) => (name === "probe" ? view.measured : view[name]),
    allowed(name, view) {
      if (!(name in lists)) return null;
      const leads = (value) => PROBES.some(([probe]) => book.has({ ...view, probe, [name]: value }));
      return new Set(lists[name].filter(leads));
    },
    extras: randomEntry,
    caption: (view) => deltaPCaption(data, view),
    file: (view) => ({ title: `${data.model}: ${ruleName(data, view.rule)}`, name: "delta_p", valueName: "delta_p" }),
  });
}

/** The random control's entry in the legend. */
function randomEntry(view) {
  const shown = view.random === "1";
  return view.cut === "random" ? [] : [{ ...RANDOM_LINE, shown, alone: false, change: { random: shown ? "0" : "1" } }];
}

function deltaPChoices(data) {
  const short = (pairs) => pairs.map(([value, title]) => ({ value, name: value, title }));
  const plainly = (values) => values.map((value) => ({ value, name: value }));
  const again = data.curves.rows.some((row) => row[4] === "again");
  const noted = "As many other tokens cut instead: it should stay near zero";
  return [
    { name: "rule", label: "Sorted by the rule", options: short(data.rules) },
    { name: "cut", label: "Intervention", options: namedOptions(data.interventions), list: true },
    { name: "truth", label: "Answers", options: short(data.truths) },
    { name: "site", label: "Site", options: plainly(data.sites) },
    { name: "position", label: "Position", options: plainly(data.positions) },
    { name: "probe", label: "Measured by", options: again ? namedOptions(PROBES) : [], list: true },
    { name: "bands", label: "95 % bands", flag: true },
    { name: "random", label: "Random control", title: noted, flag: true },
    { name: "depth", label: "Relative depth", title: "Layers as a share of the model's depth", flag: true },
  ];
}

function deltaPSpec(data, book, view) {
  const pairs = data.groups.flatMap((group) => data.datasets.map((dataset) => [dataset, group]));
  return {
    xLabel: view.depth === "1" ? "Relative depth" : "Layer",
    yLabel: "ΔP, percentage points",
    label: `ΔP per layer, ${ruleName(data, view.rule)}`,
    xMax: data.layers - 1,
    relative: view.depth === "1",
    zero: true,
    bands: view.bands === "1",
    marks: referenceMarks(data, view),
    series: pairs.flatMap(([dataset, group]) => groupLines(data, book, view, dataset, group)),
    empty: "No curves for this choice.",
  };
}

/** The reference layers at this place, one row of ticks per dataset. */
function referenceMarks(data, view) {
  return data.datasets.flatMap(({ id, q }, row) => {
    const here = ([dataset, site, position]) => dataset === id && site === view.site && position === view.position;
    const found = data.references.find(here);
    const colour = data.datasets.length > 1 ? q : "var(--ink)";
    return (found ? found[3] : []).map((x) => ({ x, colour, row }));
  });
}

/** The line of a dataset's group, and its random control. */
function groupLines(data, book, view, dataset, group) {
  const asked = { ...view, probe: view.measured };
  const found = book.find(dataset.id, group, asked);
  if (!found) return [];
  const first = group === data.groups[0];
  const id = lineId(data, dataset, group);
  const record = {
    dataset: dataset.id, group, assignment: view.rule, site: view.site, position: view.position,
    intervention: view.cut, probe: view.measured, truth: view.truth, n: found.n,
  };
  const lines = [{
    id, name: `${group} (${dataset.name})`, note: `n = ${found.n}`, record, colour: first ? dataset.q : dataset.a,
    dash: first ? null : "7 3.5", marker: dataset.marker, ...found,
  }];
  const random = book.find(dataset.id, group, { ...asked, cut: "random" });
  if (random && view.cut !== "random" && view.random === "1" && !hiddenLines(view.hide).has(id)) {
    lines.push({
      ...RANDOM_LINE, ...random, id: `${id}r`, name: `Random, ${group} (${dataset.name})`, quiet: true, unlisted: true,
      bundle: RANDOM_LINE.name, kin: RANDOM_LINE.id, record: { ...record, intervention: "random", n: random.n },
    });
  }
  return lines;
}

function lineId(data, dataset, group) {
  return `${group === data.groups[0] ? "q" : "a"}${data.datasets.indexOf(dataset)}`;
}

function deltaPCaption(data, view) {
  const named = (pairs, value) => (pairs.find(([id]) => id === value) || [value, value])[1];
  return `Shown: ${named(data.interventions, view.cut)}; ${named(data.truths, view.truth)}; groups by the rule `
    + `${ruleName(data, view.rule)}; read at ${view.site}, ${view.position}, by ${named(PROBES, view.measured)}. `
    + `Ticks at the foot: reference layers l*.${data.all_curves_here ? "" : " Further curves are in curves.csv."}`;
}

function ruleName(data, rule) {
  return (data.rules.find(([id]) => id === rule) || [rule, rule])[1];
}

for (const node of document.querySelectorAll("#delta-p-view")) {
  const data = pageData("chart-data");
  if (data && data.curves.rows.length) deltaPView(node, data);
}
