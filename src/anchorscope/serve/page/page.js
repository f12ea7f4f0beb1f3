/* The page: a question and answers go in; verdict and words come out. What is on the page is what `state` says. */

const at = (id) => document.getElementById(id);
const EXAMPLES = [
  ["Which city is the capital of Peru?", "Lima"], ["Which city is the capital of Australia?", "Sydney"],
  ["Who wrote Romeo and Juliet?", "William Shakespeare"],
];
const PAUSE_MS = 250; // after the last word was switched, before it is cut
const AGAIN_MS = 1500; // between looks at a server that is loading

const state = { mode: "ask", detectors: [], detector: null, results: [], active: 0, explanation: null, chosen: null,
  control: null, looking: null };
const words = questionWords(at("words"), { onChange: (off) => cutChosen(off) });

/** What is going on, or went wrong; with a button where trying again may help. */
function tell(problem) {
  const place = at("state");
  place.hidden = !problem;
  if (!problem) return place.replaceChildren();
  const again = ["busy", "late", "offline", "failed", "ending"].includes(problem.kind)
    ? [element("button", { type: "button", class: "push", onclick: () => (state.detectors.length ? run() : start()) }, "Try again")] : [];
  const wait = problem.kind === "busy" && problem.wait ? ` Try again in ${problem.wait} s.` : "";
  place.dataset.kind = problem.kind;
  place.replaceChildren(element("span", {}, `${problem.message}${wait}`), ...again);
  return undefined;
}

function failed(error) {
  const problem = error instanceof Problem ? error : new Problem("failed", "Something went wrong on this page.");
  if (problem.kind === "key") {
    at("key-form").hidden = false;
    at("key").focus();
  }
  if (problem.kind === "loading") setTimeout(awaitReady, AGAIN_MS);
  tell(problem);
  if (!(error instanceof Problem)) throw error;
}

async function awaitReady() {
  try {
    await answerOf("/readyz");
  } catch (error) {
    tell(error.kind === "offline" ? error : new Problem("loading", "The model is still loading."));
    setTimeout(awaitReady, AGAIN_MS);
    return;
  }
  tell(null);
  if (!state.detectors.length) start();
}

/** Learns what is served. */
async function start() {
  try {
    const found = await answered("/v1/detectors");
    state.detectors = found.data;
    state.detector = found.default;
    tell(null);
    at("key-form").hidden = true;
    showDetectors();
  } catch (error) {
    failed(error);
  }
}

function detector() {
  return state.detectors.find((one) => one.id === state.detector) || null;
}

function showDetectors() {
  const found = detector();
  if (!found) return;
  at("model-name").textContent = ` · ${found.model}`;
  aboutDetector(at("about-detector"), found);
  if (state.detectors.length < 2) return;
  const options = state.detectors.map((one) => ({ value: one.id, name: one.id }));
  const choice = choiceList("chosen-detector", "Detector", options, (value) => {
    state.detector = value;
    aboutDetector(at("about-detector"), detector());
    if (state.results.length) run();
  });
  choice.set(state.detector);
  at("detector-choice").replaceChildren(choice.node);
}

function setMode(mode) {
  state.mode = mode;
  for (const input of document.querySelectorAll("input[name=mode]")) input.checked = input.value === mode;
  const check = mode === "check";
  for (const id of ["answers", "compare"]) at(id).hidden = !check;
  at("answer-0").required = check;
  at("go").textContent = check ? "Check" : "Ask";
}

function setSecond(on) {
  at("second").hidden = !on;
  at("compare").setAttribute("aria-expanded", String(on));
  at("compare").textContent = on ? "Only one answer" : "Compare a second answer";
}

function givenAnswers() {
  const boxes = at("second").hidden ? ["answer-0"] : ["answer-0", "answer-1"];
  return boxes.map((id) => at(id).value.trim());
}

function busy(on) {
  at("stop").hidden = !on;
  at("result").setAttribute("aria-busy", String(on));
}

/** Asks or checks what stands in the form; whatever was under way ends. */
async function run(isSubmitted = false) {
  if (state.control) state.control.abort();
  if (state.looking) state.looking.abort();
  const [question, context] = ["question", "passage"].map((id) => at(id).value.trim());
  const asked = { question, ...(context ? { context } : {}) };
  if (!question) {
    at("question").focus();
    return isSubmitted ? failed(new Problem("refused", "Fill in a question.")) : undefined;
  }
  const control = (state.control = new AbortController());
  busy(true);
  tell(null);
  try {
    const results = state.mode === "ask" ? await askModel(asked, control.signal) : await check(asked, control.signal);
    if (control !== state.control) return undefined;
    state.results = results;
    showVerdicts();
    busy(false);
    await explain();
  } catch (error) {
    if (control === state.control) failed(error);
  } finally {
    if (control === state.control) busy(false);
  }
  return undefined;
}

async function askModel(asked, signal) {
  const card = verdictCard("The model's answer");
  at("examples").hidden = true;
  at("result").hidden = false;
  at("depends").hidden = true;
  at("sources").hidden = true;
  at("verdicts").replaceChildren(card.node);
  card.writing("");
  try {
    const { answer, truth } = await generated(asked, state.detector, signal);
    return [{ asked, answer, score: truth }];
  } catch (error) {
    if (signal === state.control.signal) at("result").hidden = true;
    throw error;
  }
}

async function check(asked, signal) {
  const answers = givenAnswers();
  if (answers.some((one) => !one)) throw new Problem("refused", answers.length > 1 ? "Fill in both answers." : "Fill in an answer.");
  const scores = await scored(asked, answers, state.detector, signal);
  return answers.map((answer, i) => ({ asked, answer, score: scores[i] }));
}

function showVerdicts() {
  const titles = state.mode === "ask" ? ["The model's answer"] : state.results.length > 1 ? ["First answer", "Second answer"] : ["Answer"];
  const cards = state.results.map(({ answer, score }, i) => {
    const card = verdictCard(titles[i]);
    card.show(answer, score, detector());
    return card.node;
  });
  const compared = state.results.length > 1 ? [element("p", { class: "compared" }, comparedWords(state.results.map(({ score }) => score)))] : [];
  at("examples").hidden = true;
  at("result").hidden = false;
  at("verdicts").replaceChildren(...compared, ...cards);
  state.active = Math.min(state.active, state.results.length - 1);
  at("whose").replaceChildren();
  if (state.results.length > 1) {
    const options = titles.map((name, i) => ({ value: String(i), name }));
    const whose = choiceList("words-of", "Words of", options, (value) => {
      state.active = Number(value);
      explain().catch(failed);
    });
    whose.set(String(state.active));
    at("whose").append(whose.node);
  }
}

/** Looks at what the active answer's score rests on. */
async function explain() {
  const result = state.results[state.active];
  if (state.looking) state.looking.abort();
  at("sources").hidden = !result || !result.asked.context;
  if (!at("sources").hidden) showSources(at("source-texts"), result);
  if (!result || !result.answer.trim()) return void (at("depends").hidden = true);
  const looking = (state.looking = new AbortController());
  at("depends").setAttribute("aria-busy", "true");
  try {
    const found = await explained(result, state.detector, null, looking.signal);
    if (looking !== state.looking) return undefined;
    state.explanation = found;
    state.chosen = null;
    at("depends").hidden = false;
    words.show(found);
    showReading();
  } catch (error) {
    if (looking !== state.looking) return undefined;
    at("depends").hidden = true;
    throw error;
  } finally {
    if (looking === state.looking) at("depends").setAttribute("aria-busy", "false");
  }
  return undefined;
}

let pause = null;

/** Words were switched: a set that was not run yet is asked for. */
function cutChosen(off) {
  const found = state.explanation;
  showReading();
  clearTimeout(pause);
  if (!isUnknown(found, off)) return;
  pause = setTimeout(async () => {
    if (state.looking) state.looking.abort();
    const looking = (state.looking = new AbortController());
    const result = state.results[state.active];
    try {
      const chosen = await explained(result, state.detector, off, looking.signal);
      if (looking !== state.looking || String(words.off()) !== String(off)) return;
      state.chosen = chosen;
      tell(null);
      showReading();
    } catch (error) {
      if (looking === state.looking) failed(error);
    }
  }, PAUSE_MS);
}

function showReading() {
  const found = state.explanation;
  const off = words.off();
  const keys = found.words.flatMap((word, number) => (word.key ? [number] : []));
  at("words-buttons").replaceChildren(
    ...(keys.length ? [pushButton("Cut all key words", () => words.set(keys))] : []),
    ...(off.length ? [pushButton("Cut nothing", () => words.set([]))] : []));
  const isWaiting = isUnknown(found, off) && cutProbability(found, off, state.chosen) === null;
  at("reading").textContent = isWaiting ? "Cutting …" : readingWords(found, off, state.chosen);
  const cautions = [found.note, ...found.warnings];
  at("cautions").replaceChildren(element("ul", { class: "warnings small" }, cautions.map((one) => element("li", {}, one))));
}

function showExamples() {
  at("examples").replaceChildren(element("span", { class: "small" }, "For example:"), ...EXAMPLES.map(([question, answer]) =>
    pushButton(question, () => {
      at("question").value = question;
      if (state.mode === "check") at("answer-0").value = answer;
      run();
    })));
}

at("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  run(true);
});
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  rememberKey(at("key").value.trim());
  at("key").value = "";
  at("key-form").hidden = true;
  start().then(() => { if (state.detectors.length && at("question").value.trim() && state.results.length) run(); });
});
at("stop").addEventListener("click", () => state.control && state.control.abort());
at("compare").addEventListener("click", () => setSecond(at("second").hidden));
for (const input of document.querySelectorAll("input[name=mode]")) {
  input.addEventListener("change", () => {
    setMode(input.value);
    if (input.value !== "check" || at("answer-0").value || !state.results.length) return;
    at("answer-0").value = state.results[0].answer;
  });
}
for (const id of ["question", "answer-0", "answer-1"]) {
  at(id).addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    at("ask-form").requestSubmit();
  });
}
setMode("ask");
setSecond(false);
showExamples();
start();
