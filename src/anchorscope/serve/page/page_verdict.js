/* The verdict on one answer, in plain words. */

const FEWEST_IN_A_BIN = 10;

function percent(share) {
  return `${shownNumber(100 * share, 0)} %`;
}

/** The headline of a score, and its tone. */
function headline({ verdict, truth_probability: probability }) {
  if (verdict === "out-of-range") return ["Cannot tell", "unsure"];
  if (probability === null || probability === undefined) return ["No verdict", "unsure"];
  if (probability < 0.5) return ["Probably not true", "false"];
  return verdict === "accept" ? ["Probably true", "true"] : ["Perhaps true", "unsure"];
}

/** Why it is not accepted, or from where on it is. */
function thresholdWords(score, detector) {
  if (score.verdict === "out-of-range") return "This answer is unlike all that the detector was trained on.";
  const found = ((detector && detector.thresholds) || []).find((one) => one.risk === score.risk);
  if (!found || found.probability === null || found.probability === undefined) return "";
  return `Answers are accepted from ${percent(found.probability)} on: so at most ${percent(found.risk)} of the accepted ones are wrong.`;
}

/** How far the probability can be taken at its word, by what was measured. */
function calibrationWords(score, detector, bin) {
  if (score.truth_probability === null || score.truth_probability === undefined) return "";
  const p = score.truth_probability;
  const row = bin || ((detector && detector.calibration) || []).find((one) => one.low < p && p <= one.high);
  if (row) {
    const span = `${shownNumber(100 * row.low, 0)}–${percent(row.high)}`;
    if (row.n >= FEWEST_IN_A_BIN) return `Of ${row.n} answers that got ${span} in testing, ${percent(row.true)} were true.`;
    return `Only ${row.n} ${row.n === 1 ? "answer" : "answers"} got ${span} in testing: too few to check this number.`;
  }
  const error = ((detector && detector.quality) || []).find((one) => one.metric === "ece" && one.train === one.test);
  if (error) return `In testing its probabilities were off by ${shownNumber(100 * error.value, 0)} points on average.`;
  return "How far this probability can be taken at its word was not measured.";
}

/** verdictCard(title) returns {node, writing(text), show(answer, score, detector, before), calibration(bin), warn(list)}. */
function verdictCard(title) {
  const name = element("h3", {}, title);
  const head = element("p", { class: "headline" });
  const number = element("p", { class: "probability" });
  const bar = element("div", { class: "meter", "aria-hidden": "true" }, element("span", {}));
  const text = element("blockquote", { class: "answer", dir: "auto" });
  const change = element("p", { class: "small changed", hidden: true });
  const calibration = element("p", { class: "small" });
  const threshold = element("p", { class: "small" });
  const warnings = element("ul", { class: "warnings small", hidden: true });
  const node = element("article", { class: "verdict" }, name, head, number, bar, text, change, calibration, threshold, warnings);
  let shown = null;

  function show(answer, score, detector, before) {
    const [words, tone] = headline(score);
    const probability = score.truth_probability;
    const known = probability !== null && probability !== undefined;
    shown = { score, detector };
    node.dataset.tone = tone;
    text.textContent = answer;
    head.textContent = words;
    number.textContent = known ? `${percent(probability)} likely to be true` : "";
    bar.hidden = !known;
    bar.style.setProperty("--share", known ? String(probability) : "0");
    threshold.textContent = thresholdWords(score, detector);
    calibration.textContent = calibrationWords(score, detector, null);
    warnings.replaceChildren(...(score.warnings || []).map((one) => element("li", {}, one)));
    warnings.hidden = !(score.warnings || []).length;
    const moved = known && Number.isFinite(before) ? 100 * (probability - before) : null;
    change.hidden = moved === null;
    change.textContent = moved === null ? "" : changeWords(moved, before);
  }

  return {
    node,
    show,
    writing(answer) {
      node.dataset.tone = "waiting";
      head.textContent = "Answering …";
      text.textContent = answer;
      for (const one of [number, calibration, threshold]) one.textContent = "";
      for (const one of [bar, change, warnings]) one.hidden = true;
    },
    calibration(bin) {
      if (shown) calibration.textContent = calibrationWords(shown.score, shown.detector, bin);
    },
  };
}

function changeWords(moved, before) {
  const size = shownNumber(Math.abs(moved), 0);
  if (size === "0") return `As before the change (${percent(before)}).`;
  return `${size} points ${moved > 0 ? "more" : "less"} than before the change (${percent(before)}).`;
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
