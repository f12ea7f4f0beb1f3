/* Several runs side by side: a panel each, one legend, one set of controls and one y axis for all. The question share
 * first, then ΔP; what either draws is what the page of one run draws. */

const OWN_PLACE = "own"; // every run at its own headline site or position
const COMPARED_SHARES = {
  shown: "all", truth: "all", site: "", position: "", bands: "1", controls: "1", depth: "0", hide: "",
};
const COMPARED_CURVES = { rule: "plain", cut: "knockout", truth: "all", bands: "1", random: "1", depth: "0", hide: "" };

function comparedShares(node, data) {
  const { menu, start } = data;
  const { shares } = menu;
  const panels = data.runs.map((run) => {
    const page = { ...menu, ...run, shares: { ...run.shares, controls: shares.controls } };
    return { run, page, find: shareBook(run.shares) };
  });
  const lists = {
    shown: SHARE_SHOWN.map(([value]) => value), truth: shares.truths.map(([truth]) => truth), site: shares.sites,
    position: shares.positions,
  };
  const leads = (view) => panels.some(({ run, page, find }) =>
    shareLines(page, find, placed(run, view)).some((line) => !line.quiet));
  comparedView(node, {
    prefix: "cs",
    start: { ...COMPARED_SHARES, site: start.site, position: start.position, depth: start.depth },
    controls: shareChoices(shares),
    specs: (view) => panels.map(({ run, page, find }) => {
      const spec = shareSpec(page, find, placed(run, view));
      return panelOf(run, { ...spec, series: spec.series.map((series) => controlOf(menu.datasets, series)) }, "Λ");
    }),
    extras: (view) => controlEntries({ ...menu, shares }, view),
    caption: (view) => `${shareCaption({ shares }, view)} One y axis for all panels.`,
    file: () => ({ title: "Question share Λ", name: "question_share", valueName: "share" }),
  }, lists, leads);
}

/** Of several datasets random words have their dataset's colour, and the other controls step back. */
function controlOf(datasets, series) {
  if (!series.quiet || datasets.length < 2) return series;
  if (series.record.intervention !== "random") return { ...series, width: 0.7 };
  return { ...series, colour: datasets.find(({ id }) => id === series.record.dataset).q };
}

function comparedCurves(node, data) {
  const { menu, start } = data;
  const panels = data.runs.map((run) => {
    const page = { ...menu, ...run, references: [] };
    return { run, page, book: curveBook(page) };
  });
  const lists = {
    rule: menu.rules.map(([rule]) => rule), cut: menu.interventions.map(([cut]) => cut),
    truth: menu.truths.map(([truth]) => truth), site: menu.sites, position: menu.positions,
  };
  const leads = (view) => panels.some((panel) => {
    const mine = measuredIn(panel, view);
    return panel.book.has({ ...mine, probe: mine.measured });
  });
  comparedView(node, {
    prefix: "cp",
    start: { ...COMPARED_CURVES, ...start },
    controls: deltaPChoices({ ...menu, curves: { rows: [] } }), // which probe measures follows from the rule
    specs: (view) => panels.map((panel) =>
      panelOf(panel.run, deltaPSpec(panel.page, panel.book, measuredIn(panel, view)), "ΔP")),
    order: menu.groups.flatMap((group) => menu.datasets.map((dataset) => lineId(menu, dataset, group))),
    extras: randomEntry,
    caption: (view) => curvesCaption(menu, view),
    file: (view) => ({ title: `ΔP per layer, ${ruleName(menu, view.rule)}`, name: "delta_p", valueName: "delta_p" }),
  }, lists, leads);
}

/** A chart whose controls offer what leads to a line in some panel while all other choices stay as they are. */
function comparedView(node, plan, lists, leads) {
  const allowed = (name, view) =>
    (name in lists ? new Set(lists[name].filter((value) => leads({ ...view, [name]: value }))) : null);
  chartView(node, { ...plan, allowed });
}

/** The view as one run has it: its own place where that was asked for. */
function placed(run, view) {
  const own = (name) => (view[name] === OWN_PLACE ? run[name] : view[name]);
  return { ...view, site: own("site"), position: own("position") };
}

/** The same with a probe that measured there. */
function measuredIn(panel, view) {
  const mine = placed(panel.run, view);
  const order = view.rule === "retained" ? ["again", "same"] : ["same", "again"];
  return { ...mine, measured: order.find((probe) => panel.book.has({ ...mine, probe })) || order[0] };
}

/** A run's panel. How many items a line rests on differs from panel to panel: it is no part of the legend. */
function panelOf(run, spec, yLabel) {
  const named = (series) => ({ ...series, note: "", record: { run: run.name, ...series.record } });
  const { title } = run;
  return { ...spec, series: spec.series.map(named), title, label: `${yLabel} per layer of ${title}`, yLabel, height: 330 };
}

function curvesCaption(menu, view) {
  const named = (pairs) => (value) => (pairs.find(([id]) => id === value) || [value, value])[1];
  const where = (value) => (value === OWN_PLACE ? "each run's own place" : value);
  return `Shown: ${named(menu.interventions)(view.cut)}; ${named(menu.truths)(view.truth)}; groups by the rule `
    + `${ruleName(menu, view.rule)}; read at ${[...new Set([view.site, view.position].map(where))].join(", ")}. `
    + "ΔP in percentage points, with 95 % intervals; one y axis for all panels.";
}

for (const [name, has, view] of [
  ["#compare-share", (run) => run.shares.rows.length, comparedShares],
  ["#compare-view", (run) => run.curves.rows.length, comparedCurves],
]) {
  const node = document.querySelector(name);
  const data = pageData("compare-data");
  if (node && data && data.runs.some(has)) view(node, data);
}
