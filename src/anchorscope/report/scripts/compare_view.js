/* Several models side by side: a panel each, one legend and one set of controls for all, one y axis. */

const COMPARE_START = { rule: "plain", cut: "knockout", truth: "all", bands: "1", random: "0", depth: "0", hide: "" };
const OWN_PLACE = "own"; // every run at its own headline site or position

/** Fill the node with controls, panels and legend. */
function compareView(node, data) {
  const { menu } = data;
  const start = { ...COMPARE_START, ...data.start };
  const panels = data.runs.map((run) => {
    const page = { ...menu, layers: run.layers, curves: run.curves, references: [] };
    return { run, page, book: curveBook(page), place: element("div", { class: "chart-place" }) };
  });
  const key = element("div", {});
  const caption = element("p", { class: "shown-now" });
  let view = { ...start };

  const change = (changes) => {
    view = { ...view, ...changes };
    writeHash(Object.fromEntries(Object.keys(start).map((name) => [`cp-${name}`, view[name] === start[name] ? null : view[name]])));
    refresh();
  };
  const setters = deltaPControls({ ...menu, curves: { rows: [] } }, change); // which probe measures follows from the rule
  for (const panel of panels) panel.chart = lineChart(panel.place, panelSpec(panel, view));
  const switches = legend(key, {
    onToggle: (id) => change(id === RANDOM_LINE.id ? { random: view.random === "1" ? "0" : "1" } : { hide: toggled(view.hide, id) }),
    onOnly: (id) => change({ hide: onlyThis(view.hide, id, allLines(menu)) }),
    onHover: (id) => panels.forEach((panel) => panel.chart.emphasise(id)),
  });

  function refresh() {
    const hidden = hiddenLines(view.hide);
    const specs = panels.map((panel) => panelSpec(panel, view));
    const seen = specs.map((spec) => ({ ...spec, series: spec.series.filter((one) => one.quiet || !hidden.has(one.id)) }));
    const yRange = commonRange(seen);
    seen.forEach((spec, i) => panels[i].chart.update({ ...spec, yRange }));
    const lines = new Map(specs.flatMap((spec) => spec.series).filter((one) => !one.quiet).map((one) => [one.id, one]));
    const control = view.cut === "random" || !lines.size ? [] : [{ ...RANDOM_LINE, shown: view.random === "1", alone: false }];
    switches.update([...allLines(menu).filter((id) => lines.has(id))
      .map((id) => ({ ...lines.get(id), note: "", shown: !hidden.has(id) })), ...control]);
    caption.textContent = compareCaption(menu, view);
    for (const [name, control] of Object.entries(setters)) control.set(view[name], choices(name));
  }

  /** The values of one control that lead to a curve in some panel while all others stay as they are. */
  function choices(name) {
    const lists = { rule: menu.rules, cut: menu.interventions, truth: menu.truths, site: menu.sites, position: menu.positions };
    if (!(name in lists)) return null;
    const values = lists[name].map((entry) => (Array.isArray(entry) ? entry[0] : entry));
    return new Set(values.filter((value) => panels.some((panel) => hasCurve(panel, { ...view, [name]: value }))));
  }

  const copy = pushButton("Copy CSV", () => {
    const series = panels.flatMap((panel) => panel.chart.spec().series.map((one) => ({
      ...one, record: { run: panel.run.name, ...one.record },
    })));
    copyText(chartCsv({ series }, "delta_p"), "delta_p.csv");
  });
  node.replaceChildren(
    controlRow(setters),
    element("div", { class: "panels", "--columns": panelColumns(panels.length) }, panels.map((panel) => panel.place)),
    key, caption, element("div", { class: "chart-foot" }, pushButton("Reset", () => change({ ...start })), copy),
  );
  const fromAddress = (pairs) => {
    const known = Object.entries(pairs).filter(([name]) => name.startsWith("cp-") && name.slice(3) in start);
    view = { ...start, ...Object.fromEntries(known.map(([name, value]) => [name.slice(3), value])) };
    refresh();
  };
  onHashChange(fromAddress);
  fromAddress(readHash());
}

/** Panels in a row: rows of equal length where that can be, at most three. */
function panelColumns(panels) {
  return Math.ceil(panels / Math.ceil(panels / 3));
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

function panelSpec(panel, view) {
  return {
    ...deltaPSpec(panel.page, panel.book, viewOf(panel, view)),
    title: panel.run.title, label: `ΔP per layer of ${panel.run.title}`, yLabel: "ΔP", height: 330,
  };
}

/** The values that all panels must show, so that heights can be compared across them. */
function commonRange(specs) {
  const ranges = specs.filter((spec) => spec.series.length).map((spec) => valueRange(spec));
  if (!ranges.length) return [-1, 1];
  return [Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high))];
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
  if (data && data.runs.some((run) => run.curves.rows.length)) {
    compareView(node, data);
    node.hidden = false;
    for (const printed of document.querySelectorAll("details[data-live='compare-view']")) printed.open = false;
  }
}
