/* Several models side by side: a panel each, one legend and one set of controls for all, one y axis. */

const COMPARE_START = { rule: "plain", cut: "knockout", truth: "all", bands: "1", random: "0", depth: "0", hide: "" };
const OWN_PLACE = "own"; // every run at its own headline site or position

function compareView(node, data) {
  const { menu } = data;
  const panels = data.runs.map((run) => {
    const page = { ...menu, layers: run.layers, curves: run.curves, references: [] };
    return { run, page, book: curveBook(page) };
  });
  const lists = {
    rule: menu.rules.map(([rule]) => rule), cut: menu.interventions.map(([cut]) => cut),
    truth: menu.truths.map(([truth]) => truth), site: menu.sites, position: menu.positions,
  };
  chartView(node, {
    prefix: "cp",
    start: { ...COMPARE_START, ...data.start },
    controls: deltaPChoices({ ...menu, curves: { rows: [] } }), // which probe measures follows from the rule
    specs: (view) => panels.map((panel) => panelSpec(panel, view)),
    order: menu.groups.flatMap((group) => menu.datasets.map((dataset) => lineId(menu, dataset, group))),
    /** What leads to a curve in some panel while all other choices stay as they are. */
    allowed(name, view) {
      if (!(name in lists)) return null;
      const leads = (value) => panels.some((panel) => hasCurve(panel, { ...view, [name]: value }));
      return new Set(lists[name].filter(leads));
    },
    extras: randomEntry,
    caption: (view) => compareCaption(menu, view),
    file: (view) => ({ title: `ΔP per layer, ${ruleName(menu, view.rule)}`, name: "delta_p", valueName: "delta_p" }),
  });
}

/** The view as one panel has it: its own place where that was asked for, and a probe that measured there. */
function viewOf(panel, view) {
  const mine = {
    ...view,
    site: view.site === OWN_PLACE ? panel.run.site : view.site,
    position: view.position === OWN_PLACE ? panel.run.position : view.position,
  };
  const order = view.rule === "retained" ? ["again", "same"] : ["same", "again"];
  return { ...mine, measured: order.find((probe) => panel.book.has({ ...mine, probe })) || order[0] };
}

function hasCurve(panel, view) {
  const mine = viewOf(panel, view);
  return panel.book.has({ ...mine, probe: mine.measured });
}

/** How many items a line rests on differs from panel to panel: it is no part of the legend. */
function panelSpec(panel, view) {
  const spec = deltaPSpec(panel.page, panel.book, viewOf(panel, view));
  const named = (series) => ({ ...series, note: "", record: { run: panel.run.name, ...series.record } });
  const { title } = panel.run;
  const series = spec.series.map(named);
  return { ...spec, series, title, label: `ΔP per layer of ${title}`, yLabel: "ΔP", height: 330 };
}

function compareCaption(menu, view) {
  const named = (pairs) => (value) => (pairs.find(([id]) => id === value) || [value, value])[1];
  const where = (value) => (value === OWN_PLACE ? "each run's own place" : value);
  return `Shown: ${named(menu.interventions)(view.cut)}; ${named(menu.truths)(view.truth)}; groups by the rule `
    + `${ruleName(menu, view.rule)}; read at ${[...new Set([view.site, view.position].map(where))].join(", ")}. `
    + "ΔP in percentage points, with 95 % intervals; the y axis is the same in all panels.";
}

for (const node of document.querySelectorAll("#compare-view")) {
  const data = pageData("compare-data");
  if (data && data.runs.some((run) => run.curves.rows.length)) compareView(node, data);
}
