/* The table of results: a filter, columns that sort, and the command that compares the ticked runs. */

const table = document.getElementById("results");
const rows = [...table.tBodies[0].rows];
const inOrder = new Intl.Collator("en", { numeric: true });

function filterRows(text) {
  const words = text.toLowerCase().split(/\s+/u).filter(Boolean);
  for (const row of rows) {
    const content = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => content.includes(word));
  }
  const shown = rows.filter((row) => !row.hidden).length;
  document.querySelector(".count").textContent = `${shown} of ${rows.length} results`;
}

/** Sort by a column; what has no value there ("–") stays last. */
function sortRows(head) {
  const isDown = head.getAttribute("aria-sort") === "ascending";
  const sign = isDown ? -1 : 1;
  const texts = new Map(rows.map((row) => [row, row.cells[head.cellIndex].textContent.trim()]));
  const isEmpty = (row) => texts.get(row) === "–";
  rows.sort((a, b) => isEmpty(a) - isEmpty(b) || sign * inOrder.compare(texts.get(a), texts.get(b)));
  table.tBodies[0].replaceChildren(...rows);
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
}

/** The command is made of words that are quoted already; its new folder is named after the runs. */
function showCommand() {
  const ticked = rows.map((row) => row.querySelector("input:checked")).filter(Boolean);
  const names = ticked.map((box) => box.dataset.name).join("-and-");
  const folder = `compared-${names.replace(/[^\p{L}\p{N}.]+/gu, "-")}`.slice(0, 100);
  const place = document.getElementById("compare");
  const runs = ticked.map((box) => box.value).join(" ");
  place.hidden = ticked.length === 0;
  place.querySelector("p").textContent = ticked.length < 2
    ? "One run is ticked; tick another one to compare them."
    : `${ticked.length} runs are ticked. This command compares them:`;
  place.querySelector("pre").textContent = `anchorscope compare ${runs} --out ${place.dataset.out}/${folder}`;
  place.querySelector("pre").hidden = ticked.length < 2;
  place.querySelector("button").hidden = ticked.length < 2;
}

async function copyCommand() {
  const command = document.querySelector("#compare pre");
  try {
    await navigator.clipboard.writeText(command.textContent);
    announce("Copied.");
  } catch {
    getSelection().selectAllChildren(command);
    announce("The browser does not let this page copy: the command is selected, copy it yourself.");
  }
}

document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("filter").addEventListener("input", (event) => filterRows(event.target.value));
document.querySelector("#compare button").addEventListener("click", copyCommand);
for (const button of table.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortRows(button.parentNode));
}
table.addEventListener("change", showCommand);
document.querySelector("form").hidden = false;
