/* The lead chart: the question share along the layers, of all items with the controls, or of their held-out thirds. */

const SHARE_SHOWN = [
  ["all", "All items", "The share of all items, with the controls that say whether to believe it"],
  ["thirds", "Thirds", "The lower and the upper third of the items, sorted by the share that is predicted for them"],
];
const SHARE_THIRDS = [
  ["upper third", "u", "Upper third", null],
  ["lower third", "l", "Lower third", "7 3.5"],
];
const SHARE_CONTROLS = {
  random: { colour: "#7a7a7a", dash: "1.5 3", width: 1.7 },
  "random-mass": { colour: "#7a7a7a", dash: "7 2 1.5 2" },
  none: { colour: "var(--ink)", width: 1.1, marker: "X" },
  permuted: { colour: "#9a9a9a", marker: "o", open: true },
  "random-weights": { colour: "#a97b50", dash: "8 3" },
};
const SHARE_RANGE = [-0.2, 1.1]; // where there is hardly any evidence to divide by, a share can be anything

/** A finder for shares by dataset, intervention, group and the view's place and truth. */
function shareBook(shares) {
  const book = new Map();
  for (const [dataset, site, position, cut, group, truth, n, ...lists] of shares.rows) {
    book.set([dataset, site, position, cut, group, truth].join("\u0000"), { n, ...unpacked(lists, shares.scale) });
  }
  return (dataset, cut, group, { site, position, truth }) =>
    book.get([dataset, site, position, cut, group, truth].join("\u0000"));
}

function shareView(node, data) {
  const { shares } = data;
  const find = shareBook(shares);
  const lists = {
    shown: SHARE_SHOWN.map(([value]) => value), truth: shares.truths.map(([truth]) => truth), site: shares.sites,
    position: shares.positions,
  };
  chartView(node, {
    prefix: "qs",
    start: {
      shown: "all", truth: "all", site: data.site, position: data.position, bands: "1", controls: "1", depth: "0",
      hide: "",
    },
    controls: shareChoices(shares),
    specs: (view) => [shareSpec(data, find, view)],
    allowed(name, view) {
      if (!(name in lists)) return null;
      const leads = (value) => shareLines(data, find, { ...view, [name]: value }).some((line) => !line.quiet);
      return new Set(lists[name].filter(leads));
    },
    extras: (view) => controlEntries(data, view),
    caption: (view) => shareCaption(data, view),
    file: () => ({ title: `${data.model}: question share Λ`, name: "question_share", valueName: "share" }),
  });
}

function shareChoices(shares) {
  const plainly = (values) => values.map((value) => ({ value, name: value }));
  return [
    { name: "shown", label: "Show", options: SHARE_SHOWN.map(([value, name, title]) => ({ value, name, title })) },
    { name: "truth", label: "Answers", options: plainly(shares.truths.map(([truth]) => truth)) },
    { name: "site", label: "Site", options: plainly(shares.sites) },
    { name: "position", label: "Position", options: plainly(shares.positions) },
    { name: "bands", label: "95 % bands", flag: true },
    { name: "controls", label: "Controls", title: "Random words, nothing cut, permuted labels", flag: true },
    { name: "depth", label: "Relative depth", title: "Layers as a share of the model's depth", flag: true },
  ];
}

function shareSpec(data, find, view) {
  const several = data.datasets.length > 1;
  const here = view.site === data.site && view.position === data.position;
  return {
    xLabel: view.depth === "1" ? "Relative depth" : "Layer",
    yLabel: "Question share Λ",
    label: `Question share per layer, ${view.shown === "all" ? "all items" : "thirds of the items"}`,
    xMax: data.layers - 1,
    relative: view.depth === "1",
    zero: true,
    yRange: SHARE_RANGE,
    bands: view.bands === "1",
    marks: data.datasets.filter(({ id }) => here && id in data.shares.layers).map(({ id, q }, row) => (
      { x: data.shares.layers[id], colour: several ? q : "var(--ink)", row })),
    series: shareLines(data, find, view),
    format: (value) => shownNumber(value, 2),
    empty: "Not measured for this choice.",
  };
}

function shareLines(data, find, view) {
  return data.datasets.flatMap((dataset, i) => {
    const record = { dataset: dataset.id, site: view.site, position: view.position, truth: view.truth };
    const line = (id, name, look, cut, group) => {
      const found = find(dataset.id, cut, group, view);
      const note = found && !look.quiet ? `n = ${found.n}` : "";
      if (!found) return [];
      const about = { ...record, intervention: cut, group, n: found.n };
      return [{ id: `${id}${i}`, name: `${name} (${dataset.name})`, note, record: about, ...look, ...found }];
    };
    const marker = dataset.marker;
    if (view.shown === "thirds") {
      return SHARE_THIRDS.flatMap(([group, id, name, dash]) =>
        line(id, name, { colour: dash ? dataset.a : dataset.q, dash, marker }, "knockout", group));
    }
    const drawn = shownControls(data, view);
    return [
      ...line("k", "Key words cut", { colour: dataset.q, marker }, "knockout", "all"),
      ...drawn.flatMap(({ id, name, cut, look }) => line(`${id}-`, name, {
        ...look, quiet: true, unlisted: true, kin: id, bundle: name,
      }, cut, "all")),
    ];
  });
}

/** Every control once, for all datasets; the legend switches it for all of them. */
function shareControls(data) {
  return data.shares.controls.map(([cut, words], place) => (
    { id: `c${place}`, name: words.charAt(0).toUpperCase() + words.slice(1), cut, look: SHARE_CONTROLS[cut] }));
}

function shownControls(data, view) {
  const hidden = hiddenLines(view.hide);
  return view.controls === "1" ? shareControls(data).filter(({ id }) => !hidden.has(id)) : [];
}

function controlEntries(data, view) {
  if (view.shown === "thirds" || view.controls === "0") return [];
  const shown = new Set(shownControls(data, view).map(({ id }) => id));
  return shareControls(data).map(({ id, name, look }) => (
    { ...look, id, name, shown: shown.has(id), alone: false, change: { hide: toggled(view.hide, id) } }));
}

function shareCaption(data, view) {
  const truth = (data.shares.truths.find(([id]) => id === view.truth) || [0, view.truth])[1];
  const what = view.shown === "all"
    ? "the share of the probe's evidence that needs the question's key words, beside what the controls give"
    : "the same for the third of the items with the lowest and with the highest predicted share, held out: lines that "
      + "lie on each other mean that items do not differ";
  return `Shown: ${what}; ${truth}; read at ${view.site}, ${view.position}. `
    + "Ticks at the foot: the layer that is tested. Where a line has a gap or leaves the axis there is too little "
    + "evidence to divide by.";
}

for (const node of document.querySelectorAll("#share-view")) {
  const data = pageData("chart-data");
  if (data && data.shares.rows.length) shareView(node, data);
}
