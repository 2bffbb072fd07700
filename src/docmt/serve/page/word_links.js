// Word alignments: a sentence and its translation, cut into words, with one hue for words that belong together.

const HUES = [85, 165, 245, 325, 125, 205, 285, 45]; // degrees; neighbours differ most

/**
 * Replace the text of both elements by words. links: [source start, source end, target start, target end] in code
 * points of the texts. Returns the number of groups of linked words.
 */
export function showWords(source, target, links) {
  const sides = [
    cut(source.textContent, links.map((link) => link.slice(0, 2))),
    cut(target.textContent, links.map((link) => link.slice(2))),
  ];
  const groups = joinPieces(sides, links);
  const numbers = new Map(); // of groups, in the order of the source
  for (const [side, element] of [[0, source], [1, target]]) {
    element.replaceChildren(...sides[side].map((piece) => makeWord(piece, groups(side, piece), numbers)));
  }
  return numbers.size;
}

/** Return the pieces of a text between all borders of spans: {start, end, text}. */
function cut(text, spans) {
  const points = Array.from(text); // JavaScript counts UTF-16 units, the server code points
  const borders = [...new Set([0, points.length, ...spans.flat()])].sort((one, other) => one - other);
  return borders.slice(1).map((end, index) => {
    const start = borders[index];
    return { start, end, text: points.slice(start, end).join("") };
  });
}

/** Return a function from (side, piece) to the group of the piece, or undefined for one without links. */
function joinPieces(sides, links) {
  const leader = new Map(); // a piece, as "side:start", to another one of its group
  const find = (name) => {
    while (leader.get(name) !== name) name = leader.get(name);
    return name;
  };
  const list = (side, start, end) =>
    sides[side].filter((piece) => piece.start >= start && piece.end <= end).map((piece) => `${side}:${piece.start}`);
  for (const [sourceStart, sourceEnd, targetStart, targetEnd] of links) {
    const names = [...list(0, sourceStart, sourceEnd), ...list(1, targetStart, targetEnd)];
    names.forEach((name) => leader.has(name) || leader.set(name, name));
    names.forEach((name) => leader.set(find(name), find(names[0])));
  }
  return (side, piece) => {
    const name = `${side}:${piece.start}`;
    return leader.has(name) ? find(name) : undefined;
  };
}

function makeWord(piece, group, numbers) {
  if (group === undefined) return document.createTextNode(piece.text);
  if (!numbers.has(group)) numbers.set(group, numbers.size);
  const number = numbers.get(group);
  const word = document.createElement("span");
  word.className = "word";
  word.dataset.group = number;
  word.style.setProperty("--hue", HUES[number % HUES.length]);
  word.textContent = piece.text;
  return word;
}

/** Return the text of an element from the first to the last of its words that a function selects. */
export function readWords(element, isWanted) {
  const words = [...element.querySelectorAll(".word")].filter(isWanted);
  if (!words.length) return "";
  const range = new Range();
  range.setStartBefore(words[0]);
  range.setEndAfter(words.at(-1));
  return range.toString();
}

/** Light the words of a group in both elements, and no others. */
export function lightGroup(elements, group) {
  for (const word of elements.flatMap((element) => [...element.querySelectorAll(".word")])) {
    word.classList.toggle("lit", word.dataset.group === String(group));
  }
}

const listWords = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];

/** Return the parts of a text, in which words that another text does not have are marked. */
export function markNewWords(text, other) {
  const known = new Set(listWords(other));
  return text.split(/(\s+)/).map((part) => {
    const isNew = listWords(part).some((word) => !known.has(word));
    return isNew ? Object.assign(document.createElement("mark"), { textContent: part }) : part;
  });
}
