/* Every chart of lines over layers: menus above, legend and buttons below, the view in the address.
 *
 * chartView(node, plan) fills the node from a specification of charts/live_chart.py: menus, looks by name, and panels
 * whose lines say under which choices they are shown. A view is a flat record of texts: {site: "mlp", bands: "1",
 * hide: "q0", …}. Panels share legend, menus and y axis; the axis is the same whatever is chosen. */

function chartView(node, plan) {
  const start = { ...Object.fromEntries(plan.menus.map((menu) => [menu.name, menu.start])), bands: "1",
    depth: plan.relative ? "1" : "0", hide: "" };
  const entries = legendNames(plan);
  let view = { ...start };
  const key = element("div", {});
  const caption = element("p", { class: "shown-now" });
  const controls = viewControls(plan, (changes) => change(changes));
  const panels = plan.panels.map((panel) => {
    const place = element("div", { class: "chart-place" });
    return { place, panel, chart: lineChart(place, { ...panelSpec(plan, panel, view, entries), series: [] }) };
  });
  const lines = () => panels.flatMap(({ panel }) => panelSeries(plan, panel, view, entries));
  const switches = legend(key, {
    onToggle: (id) => change({ hide: toggled(view.hide, id) }),
    onOnly: (id) => change({ hide: onlyThis(view.hide, id, loud(lines()).map((series) => series.entry)) }),
    onHover: (id) => panels.forEach(({ chart }) => chart.emphasise(id)),
  });

  function change(changes) {
    view = { ...view, ...changes };
    const kept = Object.keys(start).map((name) => [name, view[name] === start[name] ? null : view[name]]);
    writeHash(Object.fromEntries(kept.map(([name, value]) => [`${plan.prefix}-${name}`, value])));
    refresh();
  }

  function refresh() {
    panels.forEach(({ panel, chart }) => chart.update(panelSpec(plan, panel, view, entries)));
    const shown = lines();
    switches.update(legendEntries(plan, shown, hiddenLines(view.hide)), legendKeys(plan, panels));
    caption.textContent = captionOf(plan, view, shown);
    for (const { name } of plan.menus) if (name in controls) controls[name].set(view[name], allowed(plan, name, view));
    controls.bands.set(view.bands);
    controls.depth.set(view.depth);
    reset.hidden = Object.keys(start).every((name) => view[name] === start[name]);
  }

  function followAddress(pairs) {
    const named = Object.entries(start).map(([name, value]) => {
      const asked = pairs[`${plan.prefix}-${name}`];
      return [name, asked !== undefined && canBe(plan, name, asked) ? asked : value];
    });
    view = Object.fromEntries(named);
    refresh();
  }

  const reset = pushButton("Reset", () => change({ ...start }));
  const more = element("details", { class: "more-options screen-only" }, element("summary", {}, "More options"),
    controlRow(foldedControls(plan, controls)),
    element("div", { class: "chart-foot" }, exportButtons(() => ({
      specs: panels.map(({ chart }) => chart.spec()),
      title: [pageData("chart-data").model, plan.title].filter(Boolean).join(": "),
      name: plan.file,
      valueName: plan.value,
    }))));
  const places = panels.map(({ place }) => place);
  const sheet = places.length > 1
    ? element("div", { class: "panels", "--columns": panelColumns(places.length) }, places) : places[0];
  const open = plan.menus.filter((menu) => !menu.folded && menu.name in controls);
  const row = controlRow(Object.fromEntries(open.map(({ name }) => [name, controls[name]])));
  row.append(reset);
  if (node.closest(".first-screen")) { // the picture alone: its menus and its small print are folded
    more.querySelector("summary").after(row);
    more.append(caption);
    node.replaceChildren(sheet, key, more);
  } else {
    node.replaceChildren(row, sheet, key, caption, more);
  }
  node.hidden = false;
  for (const printed of document.querySelectorAll(`details[data-live="${node.id}"]`)) printed.open = false;
  onHashChange(followAddress);
  followAddress(readHash());
  if (Object.keys(readHash()).some((name) => name.startsWith(`${plan.prefix}-`))) node.scrollIntoView();
}

/** Whether a value from the address means something here; an old or mistyped link must not empty the chart. */
function canBe(plan, name, value) {
  const menu = plan.menus.find((one) => one.name === name);
  if (!menu) return name === "hide" || ["0", "1"].includes(value);
  return menu.options.some(([option]) => option === value);
}

/** Whether a line, or a row of marks, is shown under a view: −1 fits every option of a menu. */
function fits(plan, choices, view) {
  return plan.menus.every((menu, i) => choices[i] < 0 || menu.options[choices[i]][0] === view[menu.name]);
}

/** The options of a menu that lead to a line of the result while all other choices stay as they are. */
function allowed(plan, name, view) {
  const leads = (value) => plan.panels.some((panel) => panel.lines.some(([look, choices]) =>
    !plan.looks[look].quiet && fits(plan, choices, { ...view, [name]: value })));
  const menu = plan.menus.find((one) => one.name === name);
  return new Set(menu.options.map(([value]) => value).filter(leads));
}

/** The legend's entry of every look: its own, or one that it shares with the same control of other datasets. */
function legendNames(plan) {
  const shared = [...new Set(Object.values(plan.looks).map((look) => look.entry).filter(Boolean))];
  const idOf = ([id, look]) => [id, look.entry ? `c${shared.indexOf(look.entry)}` : id];
  return Object.fromEntries(Object.entries(plan.looks).map(idOf));
}

/** All lines of a panel under a view, hidden ones too. */
function panelSeries(plan, panel, view, entries) {
  return panel.lines.filter(([id, choices]) => {
    const { unless = {} } = plan.looks[id];
    return fits(plan, choices, view) && !Object.entries(unless).some(([name, value]) => view[name] === value);
  }).map((line) => {
    const [id, , n, few, point] = line;
    const { hollow, about = {}, entry, of, dash = null, ...look } = plan.looks[id];
    const chosen = Object.fromEntries(plan.menus.map((menu) => [menu.column, view[menu.name]]));
    const record = { ...(panel.run ? { run: panel.run } : {}), ...chosen, ...about, n };
    const thin = few && !look.quiet ? { dash: "1.5 4", width: 1.2, marker: null, few } : {};
    return {
      ...look, id, dash, open: hollow, entry: entries[id], bundle: entry, of, record, point: point < 0 ? null : point,
      note: look.quiet ? "" : `n = ${n}`, ...unpacked(line, plan.scale), ...thin,
    };
  });
}

/** What lineChart draws. */
function panelSpec(plan, panel, view, entries) {
  const hidden = hiddenLines(view.hide);
  const all = panelSeries(plan, panel, view, entries);
  const relative = view.depth === "1";
  return {
    title: panel.title,
    label: `${plan.title}${panel.title ? `, ${panel.title}` : ""}`,
    xLabel: relative ? "Relative depth" : "Layer",
    yLabel: plan.axis.label,
    xMax: panel.layers - 1,
    relative,
    yRange: plan.axis.range,
    level: plan.axis.null,
    bands: view.bands === "1",
    height: panel.title ? 330 : null,
    marks: panel.marks.filter(([choices]) => fits(plan, choices, view))
      .flatMap(([, colour, row, layers]) => layers.map((x) => ({ x, colour, row }))),
    series: all.filter((series) => !hidden.has(series.entry) && !(series.of && hidden.has(series.of))),
    format: (value) => shownNumber(value, plan.axis.digits),
    empty: all.length ? "All lines are switched off." : "Not measured for this choice.",
  };
}

function loud(series) {
  return series.filter((one) => !one.quiet);
}

/** Every entry once, in the order of the looks: the lines of the result, then the controls. */
function legendEntries(plan, series, hidden) {
  const entries = new Map();
  const order = Object.keys(plan.looks);
  for (const one of [...series].sort((a, b) => order.indexOf(a.id) - order.indexOf(b.id))) {
    if (entries.has(one.entry)) continue;
    const alike = series.filter((line) => line.entry === one.entry);
    const several = alike.filter((line) => line.record.run).length > 1;
    const colour = alike.every((line) => line.colour === one.colour) ? one.colour : "var(--ink)";
    entries.set(one.entry, {
      ...one, colour, id: one.entry, name: one.bundle || one.name, note: several ? "" : one.note,
      shown: !hidden.has(one.entry), alone: !one.quiet,
      items: !one.quiet && hasExplorer() && one.record.group ? one.record : null,
    });
  }
  return [...entries.values()];
}

/** What the ticks and the ringed points are; a legend that does not say so is a riddle. */
function legendKeys(plan, panels) {
  const specs = panels.map(({ chart }) => chart.spec());
  const marked = plan.mark_words && specs.some((spec) => spec.marks.length);
  const pointed = plan.point_words && specs.some((spec) => spec.series.some((series) => series.point !== null));
  return [...(marked ? [["tick", plan.mark_words]] : []), ...(pointed ? [["point", plan.point_words]] : [])];
}

function captionOf(plan, view, series) {
  const words = plan.menus.map((menu) => menu.options.find(([value]) => value === view[menu.name])?.[2]);
  const few = series.some((one) => one.few) ? "Dotted without a band: fewer than 10 groups of items. " : "";
  const [low, high] = plan.axis.range;
  const leaves = series.some(({ values }) => values.some((value) => value !== null && (value < low || value > high)));
  const why = plan.beyond ? `: ${plan.beyond}` : "";
  const beyond = leaves ? `▴ ▾ at the edge: the line goes on beyond the axis${why}. ` : "";
  return `Shown: ${words.filter(Boolean).join("; ")}. ${few}${beyond}${plan.note}`.trim();
}

/** Panels in a row: rows of equal length where that can be, at most three. */
function panelColumns(panels) {
  return Math.ceil(panels / Math.ceil(panels / 3));
}

function viewControls(plan, change) {
  const controls = {};
  for (const { name, label, options, folded } of plan.menus) {
    if (options.length < 2) continue;
    const named = options.map(([value, short, title]) => ({ value, name: short, title }));
    const list = folded && options.length > 3;
    controls[name] = chooser({ label, options: named, list, onChange: (value) => change({ [name]: value }) });
  }
  for (const [name, label, title] of [["bands", "95% bands", null],
    ["depth", "Relative depth", "Layers as a share of the model's depth"]]) {
    const control = onOff({ label, title, onChange: (on) => change({ [name]: on ? "1" : "0" }) });
    controls[name] = { node: control.node, set: (value) => control.set(value === "1") };
  }
  return controls;
}

function foldedControls(plan, controls) {
  const seen = new Set(plan.menus.filter((menu) => !menu.folded).map((menu) => menu.name));
  return Object.fromEntries(Object.entries(controls).filter(([name]) => !seen.has(name)));
}

/** Hidden entries travel in the address as their ids joined by dots. */
function hiddenLines(text) {
  return new Set(text.split(".").filter(Boolean));
}

function toggled(text, id) {
  const hidden = hiddenLines(text);
  if (!hidden.delete(id)) hidden.add(id);
  return [...hidden].join(".");
}

/** Hide all but this one of the result's lines; asked again, show all. */
function onlyThis(text, id, all) {
  const others = all.filter((one) => one !== id);
  const hidden = hiddenLines(text);
  return !hidden.has(id) && others.every((one) => hidden.has(one)) ? "" : others.join(".");
}

const unpackedLines = new Map();

/** Whole numbers of the page's data as the numbers they stand for. */
function unpacked(line, scale) {
  if (!unpackedLines.has(line)) {
    const number = (value) => (value === null ? null : value / scale);
    const [values, low, high] = line.slice(5).map((list) => list.map(number));
    unpackedLines.set(line, { values, low, high });
  }
  return unpackedLines.get(line);
}

function drawCharts() {
  const data = pageData("chart-data");
  for (const [id, plan] of Object.entries(data ? data.views : {})) {
    const node = document.getElementById(id);
    if (node) chartView(node, plan);
  }
}

drawCharts();
