// The keyboard: one table of keys for the document, valid wherever no text is being written.

/**
 * search: the SearchBar; go: function that leads to a sentence; openSentence: function of its number; undo, showHelp:
 * functions; hasLetters: function that returns whether single letters are keys.
 */
export function listenToKeys({ view, panel, search, go, openSentence, undo, showHelp, hasLetters }) {
  const move = (step) => {
    const isInText = view.root.contains(document.activeElement) || panel.isOpen;
    go(isInText ? view.neighbour(view.current, step) : view.current);
  };
  const withPanel = async (action) => {
    if (!view.sentences[view.current]?.data.target) return;
    const aligned = openSentence(view.current);
    action();
    await aligned;
  };
  const keys = {
    j: () => move(1),
    k: () => move(-1),
    n: () => go(view.next(view.current, "marked")),
    o: () => go(view.next(view.current, "open")),
    c: () => withPanel(panel.actions.confirm),
    a: () => withPanel(() => panel.showAlternatives()),
    e: () => withPanel(() => panel.startEdit()),
    t: () => withPanel(() => panel.startTerm()),
    "/": () => search.open(),
    "?": showHelp,
  };
  const keysOnSentence = {
    ArrowDown: keys.j,
    ArrowUp: keys.k,
    ArrowRight: () => panel.stepWord(1),
    ArrowLeft: () => panel.stepWord(-1),
    Enter: () => openSentence(view.current),
    " ": () => openSentence(view.current),
  };
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.altKey || document.querySelector("dialog[open]")) return;
    if (key === "Escape") return escape(panel);
    if (target.matches("input, textarea, select")) return;
    if (event.ctrlKey || event.metaKey) {
      if (key !== "z" || event.shiftKey || !view.sentences.length) return;
      event.preventDefault(); // the browser would undo what was typed in a field that is closed
      return undo();
    }
    const onSentence = view.numberAt(target) >= 0;
    const action = (onSentence ? keysOnSentence[key] : moveAmongChoices(target, key)) ?? (hasLetters() ? keys[key] : null);
    if (!action || (!view.sentences.length && key !== "?")) return;
    event.preventDefault();
    action();
  });
}

function escape(panel) {
  const menu = document.querySelector("details.menu[open]");
  if (menu) menu.open = false;
  else if (panel.isOpen && panel.draft !== undefined && !panel.form.contains(document.activeElement)) panel.close();
  else if (panel.isOpen) panel.leave();
}

/** Return an action that moves between the alternatives, if the focus is on one. */
function moveAmongChoices(target, key) {
  const item = target.closest(".alternatives li");
  const next = { ArrowDown: item?.nextElementSibling, ArrowUp: item?.previousElementSibling }[key];
  return next ? () => next.querySelector("button").focus() : undefined;
}
