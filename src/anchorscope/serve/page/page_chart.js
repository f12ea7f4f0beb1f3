/* The lines of an explanation over the layers. */

const LINE_COLOURS = ["#11692f", "#54208a", "#a07800", "#ee4d8e", "#4f2812", "#007f8c"];
const ALL_COLOUR = "#2b83e6";
const CHOSEN_COLOUR = "#e07b00";
const GREY = "#7a7a7a";

const MEASURES = [
  { value: "delta", name: "Change", title: "How far the probability of \"true\" moves at each layer" },
  { value: "probability", name: "Probability", title: "The probability of \"true\" at each layer, before and after" },
];

/** Values by layer as a list over all layers, null where a layer has no probe. */
function overLayers(found, values, scale = 1) {
  const list = Array(found.n_layers).fill(null);
  if (values) found.layers.forEach((layer, i) => { list[layer] = values[i] === null ? null : values[i] * scale; });
  return list;
}

function wordName(found, number) {
  const { text } = found.words[number];
  return [...text].length > 24 ? `${[...text].slice(0, 23).join("")}…` : text;
}

/** A line; without values there is none. */
function line(found, id, name, values, look, scale = 1) {
  return values ? [{ id, name, values: overLayers(found, values, scale), ...look }] : [];
}

function aloneLines(found, part) {
  return part.alone.flatMap(({ word, values }, i) => line(found, `w${word}`, `“${wordName(found, word)}” alone`, values, {
    colour: LINE_COLOURS[i % LINE_COLOURS.length], width: 1.5, dash: i < 6 ? null : "4 2",
  }, part.scale));
}

/** The lines of a measure; `chosen` are the values of the words that were switched off together, where they were run. */
function linesOf(found, measure, chosen) {
  const isChange = measure === "delta";
  const part = { ...found[isChange ? "delta_p" : "probability"], scale: isChange ? 1 : 100 };
  const lines = isChange ? [] : line(found, "clean", "nothing cut", part.clean, { colour: "currentColor", width: 2.2 }, 100);
  lines.push(...line(found, "all", "all key words", part.all, { colour: ALL_COLOUR, width: 2.6 }, part.scale));
  lines.push(...line(found, "chosen", "the words that you cut", chosen, { colour: CHOSEN_COLOUR, width: 2.6 }, part.scale));
  lines.push(...aloneLines(found, part));
  const { training } = found;
  if (isChange) {
    lines.push(...line(found, "random", "as many random words", part.random, { colour: GREY, dash: "6 3", quiet: true }));
    lines.push(...line(found, "true", "true answers of training, mean", training.delta_p_true, { colour: GREY, dash: "2 3", quiet: true }));
    lines.push(...line(found, "false", "false answers of training, mean", training.delta_p_false,
      { colour: GREY, dash: "10 3 2 3", quiet: true }));
  } else {
    part.random.forEach((values, i) => lines.push(...line(found, `random${i}`, "as many random words", values,
      { colour: GREY, dash: "6 3", quiet: true, shared: "random" }, 100)));
  }
  return lines;
}

/** The axis of a measure: the same whatever is switched. */
function axisOf(measure, lines) {
  if (measure === "probability") return { yRange: [0, 100], level: 50, yLabel: "Probability of “true”, %" };
  const values = lines.flatMap((one) => one.values).filter(Number.isFinite);
  const low = Math.floor(Math.min(-20, ...values) / 20) * 20; // so that quarters of the range are whole
  const high = Math.ceil(Math.max(20, ...values) / 20) * 20;
  return { yRange: [low, high], level: 0, yLabel: "Change of the probability, points" };
}

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [720, 300, 52, 12, 10, 40];

/** The points of a line, in parts: layers without a value leave a gap. */
function pathOf(values, x, y) {
  let path = "";
  values.forEach((value, layer) => {
    if (value === null) return;
    path += `${layer && values[layer - 1] !== null ? "L" : "M"}${x(layer).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  return path;
}

/** cutsChart(node) returns {show(explanation, measure, chosen)}. Arrows, Home, End and the pointer read the values. */
function cutsChart(node) {
  const picture = element("div", { class: "chart", tabindex: "0", role: "application" });
  const key = element("div", { class: "chart-key", role: "group", "aria-label": "Lines of the chart" });
  const readout = element("div", { class: "readout", role: "status", "aria-live": "polite", hidden: true });
  node.replaceChildren(picture, readout, key);
  const hidden = new Set(["false"]);
  let [shown, layer, lines] = [[], null, []];

  function draw() {
    const [found, measure, chosen] = shown;
    const every = linesOf(found, measure, chosen).map((one) => ({ ...one, entry: one.shared || one.id }));
    lines = every.filter((one) => !hidden.has(one.entry));
    const { yRange: [low, high], level, yLabel } = axisOf(measure, every);
    const last = Math.max(1, found.n_layers - 1);
    const x = (value) => LEFT + (value / last) * (WIDTH - LEFT - RIGHT);
    const y = (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    const across = (value, look) => drawn("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), ...look });
    const upright = (value, look) => drawn("line", { x1: x(value), x2: x(value), y1: TOP, y2: HEIGHT - BOTTOM, ...look });
    const text = (words, look) => drawn("text", { "font-size": 12, fill: "currentColor", ...look }, words);
    const [steps, layers] = [(high - low) / 4, Math.ceil(last / 8)].map((step) => Math.max(1, step));
    const [ticks, places] = [[low, steps, high], [0, layers, last]].map(([from, step, to]) =>
      Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, i) => from + i * step));
    const title = MEASURES.find((one) => one.value === measure).title;
    picture.setAttribute("aria-label", `${title}. Use the arrow keys to read its values.`);
    picture.replaceChildren(drawn("svg", { class: "lines", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" },
      ticks.map((tick) => [across(tick, { stroke: "currentColor", opacity: tick === level ? 0.7 : 0.15 }),
        text(shownNumber(tick, 0), { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" })]).flat(),
      places.map((place) => text(String(place), { x: x(place), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" })),
      text("Layer", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }),
      text(yLabel, { transform: `translate(13 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle" }),
      found.reference_layer === null ? [] : [upright(found.reference_layer, { stroke: GREY, "stroke-dasharray": "2 3" })],
      lines.map((one) => drawn("path", { class: "series", "data-series": one.id, d: pathOf(one.values, x, y), fill: "none",
        stroke: one.colour, "stroke-width": one.width || 1.5, "stroke-dasharray": one.dash, opacity: one.quiet ? 0.8 : 1 })),
      layer === null ? [] : [upright(layer, { stroke: "currentColor" })]));
    if (!lines.length) picture.append(element("p", { class: "small" }, every.length ? "All lines are switched off."
      : "No key words were found: there is nothing to cut."));
    const once = [...new Map(every.map((one) => [one.entry, one])).values()];
    if (once.map((one) => one.entry).join() === [...key.children].map((child) => child.dataset.entry).join()) return;
    key.replaceChildren(...once.map((one) => element("label", { class: "entry", "data-entry": one.entry },
      element("input", { type: "checkbox", checked: !hidden.has(one.entry), onchange: () => {
        if (!hidden.delete(one.entry)) hidden.add(one.entry);
        draw();
      } }), element("span", { class: "swatch", "--c": one.colour }), one.name)));
  }

  function read(place) {
    layer = place;
    readout.hidden = layer === null;
    draw();
    if (layer === null) return;
    const rows = lines.map((one) => element("tr", {},
      element("td", {}, element("span", { class: "swatch", "--c": one.colour })), element("th", { scope: "row" }, one.name),
      element("td", { class: "value" }, shownNumber(one.values[layer], 1))));
    readout.replaceChildren(element("p", { class: "where" }, `Layer ${layer}`), element("table", {}, element("tbody", {}, rows)));
  }

  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const share = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    const last = shown[0].n_layers - 1;
    read(Math.max(0, Math.min(last, Math.round(share * last))));
  });
  picture.addEventListener("pointerleave", () => read(null));
  picture.addEventListener("blur", () => read(null));
  picture.addEventListener("keydown", (event) => {
    const [at, last] = [layer === null ? -1 : layer, shown[0].n_layers - 1];
    const target = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last, Escape: null }[event.key];
    if (target === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    read(target === null ? null : Math.max(0, Math.min(last, target)));
  });
  return {
    show(...what) {
      shown = what;
      draw();
    },
  };
}
