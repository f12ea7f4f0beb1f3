/* What is wider than the page can be scrolled by keyboard; what fits is no stop on the way through the page. */

const scrollWatcher = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.setAttribute("tabindex", "0");
    else target.removeAttribute("tabindex");
  }
});
for (const part of document.querySelectorAll(".scroll, pre")) scrollWatcher.observe(part);
