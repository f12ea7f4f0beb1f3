/* The lines of an explanation over the layers, drawn by the report's own chart. */

const LINE_COLOURS = ["#11692f", "#54208a", "#a07800", "#ee4d8e", "#4f2812", "#007f8c"];
const MARKERS = ["s", "^", "D", "v", "o", "P"];
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
  return values ? [{ id, entry: id, name, values: overLayers(found, values, scale), ...look }] : [];
}

function aloneLines(found, part) {
  return part.alone.flatMap(({ word, values }, i) => line(found, `w${word}`, `“${wordName(found, word)}” alone`, values, {
    colour: LINE_COLOURS[i % LINE_COLOURS.length], marker: MARKERS[i % MARKERS.length], width: 1.5, dash: i < 6 ? null : "4 2",
  }, part.scale));
}

/** The lines of a measure; `chosen` are the values of the words that were switched off together, where they were run. */
function linesOf(found, measure, chosen) {
  const isChange = measure === "delta";
  const part = { ...found[isChange ? "delta_p" : "probability"], scale: isChange ? 1 : 100 };
  const lines = isChange ? [] : line(found, "clean", "nothing cut", part.clean, { colour: "#222222", width: 2.2 }, 100);
  lines.push(...line(found, "all", "all key words", part.all, { colour: ALL_COLOUR, width: 2.6, marker: "o" }, part.scale));
  lines.push(...line(found, "chosen", "the words that you cut", chosen, { colour: CHOSEN_COLOUR, width: 2.6, marker: "X" }, part.scale));
  lines.push(...aloneLines(found, part));
  const { training } = found;
  if (isChange) {
    lines.push(...line(found, "random", "as many random words", part.random, { colour: GREY, dash: "6 3", quiet: true }));
    lines.push(...line(found, "true", "true answers of training, mean", training.delta_p_true, { colour: GREY, dash: "2 3", quiet: true }));
    lines.push(...line(found, "false", "false answers of training, mean", training.delta_p_false,
      { colour: GREY, dash: "10 3 2 3", quiet: true }));
  } else {
    part.random.forEach((values, i) => lines.push(...line(found, `random${i}`, "as many random words", values,
      { colour: GREY, dash: "6 3", quiet: true, bundle: "as many random words", shared: "random" }, 100)));
  }
  return lines;
}

/** The axis of a measure: the same whatever is switched. */
function axisOf(measure, lines) {
  if (measure === "probability") return { yRange: [0, 100], level: 50, yLabel: "Probability of “true”, %" };
  const values = lines.flatMap((one) => one.values).filter(Number.isFinite);
  const low = Math.floor(Math.min(-10, ...values) / 10) * 10;
  const high = Math.ceil(Math.max(10, ...values) / 10) * 10;
  return { yRange: [low, high], level: 0, yLabel: "Change of the probability, points" };
}

/** cutsChart(node) returns {show(explanation, measure, chosen)}. */
function cutsChart(node) {
  const place = element("div", { class: "chart-place" });
  const key = element("div", {});
  node.replaceChildren(place, key);
  const hidden = new Set(["false"]);
  let chart = null;
  let shown = [];
  const entryOf = (one) => one.shared || one.id;
  const redraw = () => {
    const [found, measure, chosen] = shown;
    const lines = linesOf(found, measure, chosen).map((one) => ({ ...one, entry: entryOf(one) }));
    const spec = {
      ...axisOf(measure, lines), xLabel: "Layer", xMax: found.n_layers - 1,
      label: `${MEASURES.find((one) => one.value === measure).title}`,
      marks: found.reference_layer === null ? [] : [{ x: found.reference_layer, colour: GREY, row: 0 }],
      series: lines.filter((one) => !hidden.has(one.entry)),
      format: (value) => shownNumber(value, 1),
      empty: lines.length ? "All lines are switched off." : "No key words were found: there is nothing to cut.",
    };
    if (chart) chart.update(spec);
    else chart = lineChart(place, spec);
    const once = new Map(lines.map((one) => [one.entry, one]));
    switches.update([...once.values()].map((one) => ({
      ...one, id: one.entry, shown: !hidden.has(one.entry), alone: false,
    })), found.reference_layer === null ? [] : [["tick", "the layer whose probe is best"]]);
  };
  const switches = legend(key, {
    onToggle: (id) => {
      if (!hidden.delete(id)) hidden.add(id);
      redraw();
    },
    onOnly: () => {},
    onHover: (id) => chart && chart.emphasise(id),
  });
  return {
    show(...what) {
      shown = what;
      redraw();
    },
  };
}
