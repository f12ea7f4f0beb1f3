/* The bar of contents marks the section that is being read, and keeps its entry in sight. */

for (const bar of document.querySelectorAll(".bar nav")) {
  const links = [...bar.querySelectorAll("a[href^='#']")];
  const sections = links.map((link) => document.getElementById(link.getAttribute("href").slice(1)));
  let waiting = false;

  const mark = () => {
    waiting = false;
    const line = bar.getBoundingClientRect().bottom + 80;
    let current = -1;
    sections.forEach((section, i) => {
      if (section && section.getBoundingClientRect().top <= line) current = i;
    });
    if (innerHeight + scrollY >= document.documentElement.scrollHeight - 2) current = links.length - 1;
    links.forEach((link, i) => {
      const here = i === current;
      if (here === link.hasAttribute("aria-current")) return;
      if (!here) return link.removeAttribute("aria-current");
      link.setAttribute("aria-current", "true");
      return bar.scrollTo({ left: link.offsetLeft - bar.clientWidth / 2 + link.offsetWidth / 2 });
    });
  };

  const soon = () => {
    if (!waiting) requestAnimationFrame(mark);
    waiting = true;
  };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", soon, { passive: true });
  mark();
}
