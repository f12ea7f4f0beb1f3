/* The items of the page: unpacks what items/page_items.py packed, and finds items. Nothing here touches the page.
 *
 * Curves are decoded when the first item asks for them; the text that is searched is made when somebody searches. */

const ITEM_MISSING = { 1: -128, 2: -32768 }; // the lowest number of one or two bytes stands for "no value"

function itemStore(data) {
  const items = data.items;
  const size = items.id.length;
  const chart = data.interventions.findIndex((one) => one.name === "knockout");
  const unpacked = data.interventions.map(() => null);
  const places = new Map();
  let haystack = null;
  let further = null;
  let clean = null;

  /** What the probes gave the true label of the untouched item, in percent by layer; null where it was not run. */
  function cleanOf(item) {
    if (item >= data.clean.count) return null;
    clean ||= new Int16Array(bytesOf(data.clean.curves).buffer);
    const found = Array.from(clean.subarray(item * data.layers, (item + 1) * data.layers),
      (value) => stepsToPoints(value, 0.01, 2));
    return found.some((value) => value !== null) ? found : null;
  }

  /** Where an item stands in an intervention's lists; −1 where it was not run with it. */
  function placeOf(number, item) {
    unpacked[number] ||= unpackIntervention(data.interventions[number], data.layers);
    const { rows, count } = unpacked[number];
    if (rows === null) return item < count ? item : -1;
    return rows.has(item) ? rows.get(item) : -1;
  }

  function atReference(number, item) {
    const at = placeOf(number, item);
    return at < 0 ? null : stepsToPoints(unpacked[number].at[at], 0.01, 2);
  }

  /** Every intervention that was made on the item. */
  function effectsOf(item) {
    const found = [];
    data.interventions.forEach((one, number) => {
      const at = placeOf(number, item);
      if (at < 0) return;
      const { curves, width } = unpacked[number];
      const curve = curves && Array.from(curves.subarray(at * data.layers, (at + 1) * data.layers),
        (value) => stepsToPoints(value, one.step, width));
      found.push({
        name: one.name, title: one.title, variant: one.variant, control: one.control, curve,
        delta: atReference(number, item), cut: oneOf(one.n_cut, at), runs: oneOf(one.runs, at),
        flips: oneOf(one.flips, at),
      });
    });
    return found;
  }

  /** What the further experiments found of the item. */
  function furtherOf(item) {
    further ||= data.further.map((one) => ({
      ...one, rows: rowMap(one.rows), numbers: new Float32Array(bytesOf(one.values).buffer),
    }));
    return further.filter((one) => one.rows.has(item))
      .map((one) => ({ ...one, value: one.numbers[one.rows.get(item)] }));
  }

  function searched(item) {
    haystack ||= items.id.map((id, i) => plainText(
      [id, items.question[i], items.answer[i], items.subject[i]].join("\n"),
    ));
    return haystack[item];
  }

  function named(column, item) {
    const number = column.of[item];
    return number < 0 ? null : column.names[number];
  }

  items.id.forEach((id, item) => places.set(`${data.datasets[items.dataset[item]]}\n${id}`, item));
  return {
    data,
    size,
    chart,
    rules: Object.keys(items.pathways),
    cleanOf,
    effectsOf,
    furtherOf,
    atReference,
    dataset: (item) => data.datasets[items.dataset[item]],
    title: (item) => data.titles[items.dataset[item]],
    status: (item) => named(items.status, item),
    relation: (item) => named(items.relation, item),
    pathway: (rule, item) => (items.pathways[rule] ? named(items.pathways[rule], item) : null),
    find: (dataset, id) => places.get(`${dataset}\n${id}`) ?? -1,
    select: (wanted) => selectItems(wanted, size, items, { searched, named, data }),
    sort: (found, order) => sortItems(found, order, items, (item) => (chart < 0 ? null : atReference(chart, item))),
  };
}

/** Items that fit: words in any order, and a value for each filter that is set. */
function selectItems(wanted, size, items, { searched, named, data }) {
  const words = plainText(wanted.text || "").split(/\s+/u).filter(Boolean);
  const dataset = wanted.dataset ? data.datasets.indexOf(wanted.dataset) : -1;
  const truth = { true: 1, false: 0, unknown: -1 }[wanted.truth];
  const pathways = items.pathways[wanted.rule];
  const found = [];
  for (let item = 0; item < size; item += 1) {
    if (dataset >= 0 && items.dataset[item] !== dataset) continue;
    if (truth !== undefined && items.truth[item] !== truth) continue;
    if (wanted.status && named(items.status, item) !== wanted.status) continue;
    if (wanted.pathway && (!pathways || named(pathways, item) !== wanted.pathway)) continue;
    if (words.length && !words.every((word) => searched(item).includes(word))) continue;
    found.push(item);
  }
  return found;
}

/** In another order; what has no number comes last, and equals stay as they were. */
function sortItems(found, order, items, deltaOf) {
  const [what, direction] = order.split(" ");
  if (what === "id") {
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    return [...found].sort((a, b) => compare(items.id[a], items.id[b]));
  }
  const valueOf = {
    delta: deltaOf, confidence: (item) => items.confidence[item],
  }[what];
  if (!valueOf) return found;
  const sign = direction === "down" ? -1 : 1;
  const keyed = found.map((item) => [item, valueOf(item)]);
  const [with_, without] = [keyed.filter(([, value]) => value !== null), keyed.filter(([, value]) => value === null)];
  return [...with_.sort((a, b) => sign * (a[1] - b[1])), ...without].map(([item]) => item);
}

/** Small letters without accents, so that "Sao" finds "São". */
function plainText(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}

function unpackIntervention(one, layers) {
  const width = one.step < 1 ? 2 : 1;
  const curves = one.curves === null ? null : bytesOf(one.curves);
  return {
    rows: one.rows === null ? null : rowMap(one.rows),
    count: one.count,
    at: new Int16Array(bytesOf(one.at).buffer),
    curves: curves && (width === 2 ? new Int16Array(curves.buffer) : new Int8Array(curves.buffer)),
    width,
    layers,
  };
}

function rowMap(packed) {
  return new Map(Array.from(new Uint32Array(bytesOf(packed).buffer), (item, at) => [item, at]));
}

function bytesOf(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

function stepsToPoints(value, step, width) {
  return value === ITEM_MISSING[width] ? null : value * step;
}

function oneOf(values, at) {
  return Array.isArray(values) ? values[at] : values;
}
