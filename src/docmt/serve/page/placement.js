// Where things stand: nothing covers the sentence that is worked on, and a menu is inside of the window.

const GAP = 16; // pixels

/** Keep what is led to, and the sentence of the open panel, between what stays above and below the text. */
export function keepInSight(tools, search, panel) {
  const height = (box, position) => (getComputedStyle(box).position === position ? box.offsetHeight : 0);
  const sizes = new ResizeObserver((changes) => {
    const above = height(tools, "sticky");
    const below = Math.max(height(search, "fixed"), height(panel.root, "fixed"));
    document.documentElement.style.scrollPadding = `${above + GAP}px 0 ${below + GAP}px`;
    document.querySelector("main").style.paddingBottom = `${below + 4 * GAP}px`; // the last sentence can rise above it
    const isPanel = changes.some(({ target }) => target === panel.root); // else the user may have scrolled elsewhere
    if (below && isPanel) panel.pair?.target.scrollIntoView({ block: "nearest" });
  });
  [tools, search, panel.root].forEach((each) => sizes.observe(each));
}

/** Move a menu that opens to the left if it reaches beyond the window. */
export function keepInside(menu) {
  const list = menu.querySelector("div");
  menu.addEventListener("toggle", () => {
    list.style.left = "0";
    const beyond = list.getBoundingClientRect().right + GAP - document.documentElement.clientWidth;
    list.style.left = `${Math.min(0, -beyond)}px`;
  });
}
