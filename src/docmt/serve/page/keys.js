// The keyboard: one table of keys for the document, valid wherever no text is being written.

/** showHelp: function; openSentence: function of the number of a sentence. */
export function listenToKeys({ view, panel, openSentence, showHelp }) {
  const move = (step) => {
    const isInText = view.root.contains(document.activeElement) || panel.isOpen;
    const number = isInText ? Math.max(0, Math.min(view.current + step, view.sentences.length - 1)) : view.current;
    go(number);
  };
  const go = (number) => {
    view.focus(number);
    if (panel.isOpen) openSentence(number); // the panel goes along
  };
  const withPanel = async (action) => {
    if (!view.sentences[view.current]) return;
    const aligned = openSentence(view.current);
    action();
    await aligned;
  };
  const keys = {
    j: () => move(1),
    k: () => move(-1),
    n: () => go(view.nextMarked(view.current)),
    a: () => withPanel(() => panel.showAlternatives()),
    e: () => withPanel(() => panel.startEdit()),
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
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (key === "Escape") return escape(panel);
    if (target.matches("input, textarea, select")) return;
    const onSentence = view.numberAt(target) >= 0;
    const action = (onSentence ? keysOnSentence[key] : moveAmongChoices(target, key)) ?? keys[key];
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
