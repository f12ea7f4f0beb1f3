/* On paper nothing can be unfolded: what is folded is opened before printing and folded again afterwards. */

let openedForPrint = [];

function unfoldAll() {
  openedForPrint = [...document.querySelectorAll("details:not([open]):not(.screen-only)")];
  for (const part of openedForPrint) part.open = true;
}

function foldAgain() {
  for (const part of openedForPrint) part.open = false;
  openedForPrint = [];
}

addEventListener("beforeprint", unfoldAll);
addEventListener("afterprint", foldAgain);
