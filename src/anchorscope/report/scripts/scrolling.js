/* What is wider than the page says so and can be scrolled by keyboard; what fits is no stop of the Tab key. */

const scrollWatcher = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const wide = target.scrollWidth > target.clientWidth;
    target.classList.toggle("scrolls", wide);
    if (wide) target.setAttribute("tabindex", "0");
    else target.removeAttribute("tabindex");
  }
});
for (const part of document.querySelectorAll(".scroll, pre, .plate")) scrollWatcher.observe(part);
