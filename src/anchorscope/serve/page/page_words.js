/* The question with its words as switches: a word that is switched off is cut. */

const MOST_SWITCHES = 240; // of a longer question only the key words can be switched

/** questionWords(node, {onChange(off)}) returns {show(explanation), off(), set(numbers)}; `off` are numbers of words. */
function questionWords(node, { onChange }) {
  let buttons = new Map();
  let off = new Set();

  function mark() {
    for (const [number, button] of buttons) button.setAttribute("aria-pressed", String(off.has(number)));
  }

  function change(next) {
    off = new Set([...next].filter((number) => buttons.has(number)));
    mark();
    onChange([...off].sort((a, b) => a - b));
  }

  function flipped(number) {
    const next = new Set(off);
    if (!next.delete(number)) next.add(number);
    return next;
  }

  return {
    off: () => [...off].sort((a, b) => a - b),
    set: change,
    show({ question, words }) {
      const letters = [...question]; // places are counted in whole characters
      const all = words.length <= MOST_SWITCHES;
      const parts = [];
      let end = 0;
      buttons = new Map();
      off = new Set();
      words.forEach((word, number) => {
        if (!all && !word.key) return;
        parts.push(letters.slice(end, word.start).join(""));
        const button = element("button", {
          type: "button", class: word.key ? "cuttable key" : "cuttable", "aria-pressed": "false",
          title: word.key ? "A key word: switch it off to cut it" : "Switch this word off to cut it",
          onclick: () => change(flipped(number)),
        }, letters.slice(word.start, word.end).join(""));
        buttons.set(number, button);
        parts.push(button);
        end = word.end;
      });
      node.replaceChildren(...parts, letters.slice(end).join(""));
    },
  };
}

/** The names of some words, in quotation marks; of many only how many there are. */
function namedWords(found, numbers) {
  return numbers.length > 3 ? `${numbers.length} words` : numbers.map((number) => `“${wordName(found, number)}”`).join(" and ");
}

function wordName(found, number) {
  const { text } = found.words[number];
  return [...text].length > 24 ? `${[...text].slice(0, 23).join("")}…` : text;
}

/** The probability without what is switched off, where it is known: key words together and alone came with the
 * explanation, other sets are asked for (`chosen`: an explanation with those words cut). */
function cutProbability(found, off, chosen) {
  const values = found.probability;
  if (!off.length || isAllKeys(found, off)) return values.all;
  const alone = values.alone.find(({ word }) => off.length === 1 && word === off[0]);
  if (alone) return alone.value;
  return chosen && chosen.chosen && String(chosen.chosen) === String(off) ? chosen.probability.chosen : null;
}

function isAllKeys(found, off) {
  const keys = found.words.flatMap((word, number) => (word.key ? [number] : []));
  return keys.length > 0 && String(keys) === String(off);
}

/** Whether a set of words has to be asked for. */
function isUnknown(found, off) {
  return off.length > 0 && !isAllKeys(found, off)
    && !(off.length === 1 && found.probability.alone.some(({ word }) => word === off[0]));
}

/** The detector's probability with and without the words that are switched off. */
function readingWords(found, off, chosen) {
  const { clean, random } = found.probability;
  const start = `The detector gives “true” ${chance(clean)}.`;
  const after = cutProbability(found, off, chosen);
  if (after === null) return start;
  const moved = (value) => `${signed(100 * (value - clean))} points`;
  const isAll = !off.length || isAllKeys(found, off);
  const mean = random.reduce((sum, value) => sum + value / random.length, 0);
  const control = isAll && random.length ? ` As many random words: ${moved(mean)}.` : "";
  return `${start} Without ${isAll ? "the key words" : namedWords(found, off)} it gives ${chance(after)} (${moved(after)}).${control}`;
}

function signed(value) {
  const text = shownNumber(value, 0);
  return text === "0" || value < 0 ? text : `+${text}`;
}

/** Passage, question and answer; words of the answer in the colour of the text that they stand in. */
function showSources(node, { asked: { context, question }, answer }) {
  const listed = (text) => new Set(text.toLowerCase().match(/[\p{L}\p{N}]+/gu));
  const [passageWords, questionWords, answerWords] = [context, question, answer].map(listed);
  const sourceOf = (word) => (passageWords.has(word) ? "passage" : questionWords.has(word) ? "question" : "own");
  const marked = (text, wordClass) => text.split(/([\p{L}\p{N}]+)/u).map((piece, i) => {
    const name = i % 2 ? wordClass(piece.toLowerCase()) : null;
    return name ? element("mark", { class: name }, piece) : piece;
  });
  const texts = [["Passage", context, (word) => answerWords.has(word) && "passage"],
    ["Question", question, (word) => answerWords.has(word) && "question"], ["Answer", answer, sourceOf]];
  node.replaceChildren(...texts.flatMap(([name, text, wordClass]) =>
    [element("dt", {}, name), element("dd", { dir: "auto" }, marked(text, wordClass))]));
}
