/* Requests to the service that this page came from, and what goes wrong with them, in plain words. */

const KEY_NAME = "anchorscope-key";

/** What went wrong: `kind` tells the page what to do about it, `wait` after how many seconds to try again. */
class Problem extends Error {
  constructor(kind, message, wait = null) {
    super(message);
    this.kind = kind;
    this.wait = wait;
  }
}

function rememberedKey() {
  try {
    return sessionStorage.getItem(KEY_NAME) || "";
  } catch {
    return rememberKey.key || "";
  }
}

function rememberKey(key) {
  rememberKey.key = key;
  try {
    sessionStorage.setItem(KEY_NAME, key);
  } catch {
    // A browser that may not remember keeps it until the page is left.
  }
}

/** The answer to a request; throws a Problem where there is none. */
async function answerOf(path, body, signal) {
  const key = rememberedKey();
  const headers = { ...(body ? { "Content-Type": "application/json" } : {}), ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body ? JSON.stringify(body) : undefined,
      signal, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    throw broken(error);
  }
  if (answer.ok) return answer;
  let told = {};
  try {
    told = (await answer.json()).error || {};
  } catch {
    // No envelope: the status has to do.
  }
  throw problemOf(answer.status, told, Number(answer.headers.get("Retry-After")) || null);
}

function broken(error) {
  if (error instanceof Problem) return error;
  if (error.name === "AbortError") return new Problem("stopped", "Stopped.");
  return new Problem("offline", "The server cannot be reached. Is it still running?");
}

/** A status and OpenAI's error record as a Problem. */
function problemOf(status, told, wait) {
  const said = typeof told.message === "string" ? told.message : "";
  if (status === 401) return new Problem("key", rememberedKey() ? "This key is not known here." : "This server wants a key.");
  if (status === 429) return new Problem("busy", "The server is busy.", wait || 2);
  if (status === 503 && told.code === "model_loading") return new Problem("loading", "The model is still loading.", wait || 2);
  if (status === 503) return new Problem("ending", said || "The server is shutting down.");
  if (status === 504) return new Problem("late", "The answer took longer than the server allows. Try again, or shorten the text.");
  if (status === 413) return new Problem("refused", said || "The text is too long. Shorten it.");
  if (status >= 500) return new Problem("failed", said || "Something went wrong on the server.");
  return new Problem("refused", said || `The server refused this (${status}).`);
}

/** The JSON that a route answers. */
async function answered(path, body, signal) {
  const answer = await answerOf(path, body, signal);
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw broken(error);
    throw new Problem("failed", "The server's answer cannot be read.");
  }
}

/** The model's own answer, {answer, truth}. `asked` is {question} or {question, context}. */
async function generated({ question, ...sources }, detector, signal) {
  const body = { messages: [{ role: "user", content: question }], ...sources, ...(detector ? { detector } : {}) };
  const { choices: [choice] } = await answered("/v1/chat/completions", body, signal);
  return { answer: choice.message.content, truth: choice.truth };
}

/** Scores of answers to one question, in their order. */
async function scored(asked, answers, detector, signal) {
  const items = answers.map((answer) => ({ ...asked, answer }));
  const found = await answered("/v1/score", { items, ...(detector ? { detector } : {}) }, signal);
  return found.items.map((item) => {
    if (item.error) throw new Problem("refused", item.error.message);
    return { ...item, risk: found.risk, detector: found.detector };
  });
}

/** What a score rests on; `cut` are the numbers of words that are cut together. */
function explained({ asked, answer }, detector, cut, signal) {
  return answered("/v1/explain", { ...asked, answer, ...(detector ? { detector } : {}), ...(cut ? { cut } : {}) }, signal);
}
