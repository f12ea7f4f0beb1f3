/* The verdict on one answer, in plain words. */

const FEWEST_IN_A_BIN = 10;

function percent(share) {
  return `${shownNumber(100 * share, 0)}%`;
}

/** A probability of a detector: an end of the scale is never claimed. */
function chance(probability) {
  const within = Math.min(Math.max(probability, 0.01), 0.99);
  return `${probability < within ? "<" : probability > within ? ">" : ""}${percent(within)}`;
}

/** The headline of a score is its verdict: true, unsure, false, out-of-range; with its tone. */
function headline({ verdict }) {
  return [verdict, verdict === "out-of-range" ? "unsure" : verdict];
}

/** From which probabilities on answers are called what. */
function thresholdWords(score, detector) {
  if (score.verdict === "out-of-range") return "This answer is unlike all that the detector was trained on.";
  const threshold = ((detector && detector.thresholds) || []).find((row) => row.risk === score.risk);
  if (!threshold) return "";
  const isFalse = `“false” up to ${percent(Math.min(threshold.risk, 0.5))}`;
  if (!Number.isFinite(threshold.probability)) return `Answers are ${isFalse}, and none is “true”: that risk could not be reached.`;
  return `Answers are “true” from ${percent(threshold.probability)} on (at most ${percent(threshold.risk)} of these are wrong), ${isFalse}, “unsure” between.`;
}

/** How far the probability can be taken at its word, by what was measured. */
function calibrationWords(score, detector) {
  if (score.truth_probability === null || score.truth_probability === undefined) return "";
  const p = score.truth_probability;
  const row = ((detector && detector.calibration) || []).find((one) => one.low < p && p <= one.high);
  if (row) {
    const span = `${shownNumber(100 * row.low, 0)}–${percent(row.high)}`;
    if (row.n >= FEWEST_IN_A_BIN) return `Of ${row.n} answers that got ${span} in testing, ${percent(row.true)} were true.`;
    return `Only ${row.n} ${row.n === 1 ? "answer" : "answers"} got ${span} in testing: too few to check this number.`;
  }
  const error = ((detector && detector.quality) || []).find((one) => one.metric === "ece" && one.train === one.test);
  if (error) return `In testing its probabilities were off by ${shownNumber(100 * error.value, 0)} points on average.`;
  return "How far this probability can be taken at its word was not measured.";
}

/** How much of the answer's probability goes with its passage; nothing where there is none. */
function usedWords({ context_used: used, context_probability: likely, passage }) {
  if (!Number.isFinite(used)) return "";
  const rests = passage ? `; it rests on passage ${passage}` : "";
  const isMeasured = Number.isFinite(likely);
  const followed = isMeasured ? `; ${percent(likely)} likely to follow it` : "";
  const share = `without the passage it would be ${percent(used)} less likely, per token${followed}${rests}`;
  return `The model ${used < 0.1 ? "ignores" : "uses"} the passage: ${share}.`;
}

/** verdictCard(title) returns {node, writing(text), show(answer, score, detector)}. */
function verdictCard(title) {
  const head = element("p", { class: "headline" });
  const number = element("p", { class: "probability" });
  const bar = element("div", { class: "meter", "aria-hidden": "true" }, element("span", {}));
  const text = element("blockquote", { class: "answer", dir: "auto" });
  const notes = element("div", {});
  const node = element("article", { class: "verdict" }, element("h3", {}, title), head, number, bar, text, notes);

  function write(answer, words, tone) {
    node.dataset.tone = tone;
    text.textContent = answer;
    head.textContent = words;
    bar.hidden = true;
  }

  return {
    node,
    writing: (answer) => write(answer, "Answering …", "waiting"),
    show(answer, score, detector) {
      const probability = score.truth_probability;
      write(answer, ...headline(score));
      if (Number.isFinite(probability)) {
        number.textContent = `${chance(probability)} likely to be true`;
        bar.hidden = false;
        bar.style.setProperty("--share", String(probability));
      }
      const lines = [usedWords(score), calibrationWords(score, detector), thresholdWords(score, detector), ...(score.warnings || [])];
      notes.replaceChildren(...lines.filter(Boolean).map((line) => element("p", { class: "small" }, line)));
    },
  };
}

/** What two answers to the same question say of each other. */
function comparedWords(scores) {
  const [first, second] = scores.map((one) => one.truth_probability);
  if (![first, second].every(Number.isFinite)) return "";
  const apart = 100 * (first - second);
  const size = shownNumber(Math.abs(apart), 0);
  if (size === "0") return "Both answers are equally likely to be true.";
  return `The ${apart > 0 ? "first" : "second"} answer is ${size} points more likely to be true.`;
}
