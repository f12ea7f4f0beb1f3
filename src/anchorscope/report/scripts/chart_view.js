/* A chart with everything around it: controls above, legend and buttons below, and the view in the address.
 *
 * chartView(node, plan) fills the node. A view is a flat record of texts: {site: "mlp", bands: "1", hide: "q0", …}.
 * plan = {
 *   prefix                     of its keys in the address
 *   start                      the first view; `hide` must be among its keys
 *   controls: [{name, label, options: [{value, name, title?}], list?} or {name, label, title?, flag: true}]
 *   specs(view)                what lineChart draws, with all lines, one per panel; panels share legend and y axis.
 *                              `unlisted` lines are not in the legend
 *   order?                     ids of the lines in the legend's order, where panels differ in what they have
 *   settle?(view)              sets what follows from the choices
 *   allowed?(name, view)       the values of a control that lead to something, or null
 *   shown?(name, view)         the value that a control shows, if it is not the view's own
 *   extras?(view)              further entries of the legend; `change` is what a click on one changes
 *   caption?(view)             a sentence under the chart
 *   file(view)                 {title, name, valueName} for what is taken along
 * } */

function chartView(node, plan) {
  const settle = (view) => (plan.settle ? plan.settle(view) : view);
  let view = settle({ ...plan.start });
  const key = element("div", {});
  const caption = element("p", { class: "shown-now" });
  const controls = viewControls(plan, (changes) => change(changes));
  const panels = plan.specs(view).map((spec) => {
    const place = element("div", { class: "chart-place" });
    return { place, chart: lineChart(place, { ...spec, series: [] }) };
  });
  const switches = legend(key, {
    onToggle(id) {
      const extra = extras().find((entry) => entry.id === id);
      change(extra ? extra.change : { hide: toggled(view.hide, id) });
    },
    onOnly: (id) => change({ hide: onlyThis(view.hide, id, listed(plan, view).map((series) => series.id)) }),
    onHover: (id) => panels.forEach(({ chart }) => chart.emphasise(id)),
  });
  const extras = () => (plan.extras ? plan.extras(view) : []);

  function change(changes) {
    view = settle({ ...view, ...changes });
    const kept = Object.keys(plan.start).map((name) => [name, view[name] === plan.start[name] ? null : view[name]]);
    writeHash(Object.fromEntries(kept.map(([name, value]) => [`${plan.prefix}-${name}`, value])));
    refresh();
  }

  function refresh() {
    const hidden = hiddenLines(view.hide);
    const seen = plan.specs(view).map((spec) => ({
      ...spec,
      series: spec.series.filter((series) => !hidden.has(series.id)),
      empty: spec.series.length ? "All lines are switched off." : spec.empty,
    }));
    const yRange = seen.length > 1 ? commonRange(seen) : seen[0].yRange;
    seen.forEach((spec, i) => panels[i].chart.update({ ...spec, yRange }));
    const lines = listed(plan, view).map((series) => ({ ...series, shown: !hidden.has(series.id) }));
    switches.update([...lines, ...extras()]);
    if (plan.caption) caption.textContent = plan.caption(view);
    for (const [name, control] of Object.entries(controls)) {
      control.set(plan.shown ? plan.shown(name, view) : view[name], plan.allowed ? plan.allowed(name, view) : null);
    }
  }

  function followAddress(pairs) {
    const named = Object.entries(plan.start).map(([name, value]) => {
      const asked = pairs[`${plan.prefix}-${name}`];
      return [name, asked !== undefined && canBe(plan, name, asked) ? asked : value];
    });
    view = settle(Object.fromEntries(named));
    refresh();
  }

  const taken = exportButtons(() => ({ specs: panels.map(({ chart }) => chart.spec()), ...plan.file(view) }));
  const foot = element("div", { class: "chart-foot" }, pushButton("Reset", () => change({ ...plan.start })), taken);
  const places = panels.map(({ place }) => place);
  const sheet = places.length > 1
    ? element("div", { class: "panels", "--columns": panelColumns(places.length) }, places) : places[0];
  node.replaceChildren(controlRow(controls), sheet, key, ...(plan.caption ? [caption] : []), foot);
  node.hidden = false;
  for (const printed of document.querySelectorAll(`details[data-live="${node.id}"]`)) printed.open = false;
  onHashChange(followAddress);
  followAddress(readHash());
  if (Object.keys(readHash()).some((name) => name.startsWith(`${plan.prefix}-`))) node.scrollIntoView();
}

/** Whether a value from the address means something here; an old or mistyped link must not empty the chart. */
function canBe(plan, name, value) {
  const control = plan.controls.find((one) => one.name === name);
  if (!control) return name === "hide";
  return control.flag ? ["0", "1"].includes(value) : control.options.some((option) => option.value === value);
}

/** The lines of the legend: those of all panels, each once. */
function listed(plan, view) {
  const lines = plan.specs(view).flatMap((spec) => spec.series).filter((series) => !series.unlisted);
  const once = [...new Map(lines.map((series) => [series.id, series])).values()];
  return plan.order ? once.sort((a, b) => plan.order.indexOf(a.id) - plan.order.indexOf(b.id)) : once;
}

/** Panels in a row: rows of equal length where that can be, at most three. */
function panelColumns(panels) {
  return Math.ceil(panels / Math.ceil(panels / 3));
}

/** The values that all panels must show, so that heights can be compared across them. */
function commonRange(specs) {
  const ranges = specs.filter((spec) => spec.series.length).map((spec) => valueRange(spec));
  if (!ranges.length) return [-1, 1];
  return [Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high))];
}

function viewControls(plan, change) {
  const controls = {};
  for (const { name, label, options, list, title, flag } of plan.controls) {
    if (flag) {
      const control = onOff({ label, title, onChange: (on) => change({ [name]: on ? "1" : "0" }) });
      controls[name] = { node: control.node, set: (value) => control.set(value === "1") };
    } else if (options.length > 1) {
      controls[name] = chooser({ label, options, list, onChange: (value) => change({ [name]: value }) });
    }
  }
  return controls;
}

/** Pairs of value and name as options of a chooser. */
function namedOptions(pairs) {
  return pairs.map(([value, name]) => ({ value, name }));
}

/** Hidden lines travel in the address as their ids joined by dots. */
function hiddenLines(text) {
  return new Set(text.split(".").filter(Boolean));
}

function toggled(text, id) {
  const hidden = hiddenLines(text);
  if (!hidden.delete(id)) hidden.add(id);
  return [...hidden].join(".");
}

/** Hide all but this one; asked again, show all. */
function onlyThis(text, id, all) {
  const others = all.filter((one) => one !== id);
  const hidden = hiddenLines(text);
  return !hidden.has(id) && others.every((one) => hidden.has(one)) ? "" : others.join(".");
}

/** Whole numbers of the page's data as the numbers they stand for. */
function unpacked(lists, scale) {
  const [values, low, high] = lists.map((list) => list.map((value) => (value === null ? null : value / scale)));
  return { values, low, high };
}
