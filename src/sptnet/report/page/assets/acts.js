// Edits that a person makes on the page.
function changed() {
  state = replay();
  for (const watcher of watchers) watcher();
}

function add(edit, words) {
  edits.push(edit);
  changed();
  say(words);
}

// The same rules as on the command line; returns "" for a valid name.
function nameProblem(name, category = null) {
  if (!name || name !== name.trim() || [...name].length > 100) return "Give 1 to 100 characters.";
  if (/\p{C}|(?! )\p{Z}|[/\\]/u.test(name) || name.startsWith(".")) {
    return "Names become folders: no slashes, no control characters, no dot at the beginning.";
  }
  if (state.categories.some((other) => other.name === name && other.key !== category?.key)) {
    return category ? "Another category has this name. To put both together, merge them."
      : "There is a category of this name. Choose it from the list instead.";
  }
  return "";
}

// A placeholder for a new category, as the run gives them.
function freeName() {
  const taken = new Set(state.categories.map((category) => category.name));
  let number = 1;
  while (taken.has(`new-${number}`)) number += 1;
  return `new-${number}`;
}

const idsOf = (images) => images.map((image) => data.images.id[image]);

function rename(category, to) {
  add({ verb: "rename", category: category.name, to }, `Renamed ${category.shown} to ${to}.`);
}

function merge(from, into) {
  add({ verb: "merge", categories: [from.name], into: into.name }, `Merged ${from.shown} into ${into.shown}.`);
}

function moveImages(images, to, create) {
  const category = state.categories.find((one) => one.name === to);
  const words = `Moved ${named(images)} to ${category?.shown ?? to}.`;
  add({ verb: "move", images: idsOf(images), to, ...(create ? { create } : {}) }, words);
}

// Dropped images can be moved, which restores them, but not confirmed.
function confirmImages(images) {
  const open = images.filter((image) => !isConfirmed(image) && !isDropped(image));
  if (open.length === 0) return say("There is nothing to confirm.");
  add({ verb: "confirm", targets: idsOf(open) }, `Confirmed ${named(open)}.`);
}

function dropImages(images) {
  const open = images.filter((image) => !isDropped(image));
  if (open.length === 0) return say("All of them are marked as wrong already.");
  add({ verb: "drop", images: idsOf(open) }, `Marked ${named(open)} as wrong.`);
}

// Marks of single images depend on no other edit, so they can be taken back in any order.
function takeBack(number, image, words) {
  const edit = edits[number];
  const list = edit.images ?? edit.targets;
  list.splice(list.indexOf(data.images.id[image]), 1);
  if (list.length === 0) edits.splice(number, 1);
  changed();
  say(words);
}

function toggleWrong(image) {
  if (!isDropped(image)) return dropImages([image]);
  takeBack(state.dropped.get(image), image, `${imageName(image)} is no longer marked as wrong.`);
}

// An image that was moved, or confirmed with its category or before, stays confirmed.
const canUnconfirm = (image) => isConfirmed(image) && state.confirmed.get(image) >= 0;

function toggleConfirmImage(image) {
  if (!isConfirmed(image)) return confirmImages([image]);
  if (!canUnconfirm(image)) return say(`${imageName(image)} was confirmed before, or with its category.`);
  takeBack(state.confirmed.get(image), image, `${imageName(image)} is no longer confirmed.`);
}

// Numbers of the edits that confirmed the category, or one that was merged into it, as a whole.
const confirmations = (category) =>
  state.wholes.filter(({ key }) => state.home[key] === category.key).map(({ number }) => number);

// A confirmed category is taken back as a whole, in whatever steps it was confirmed.
function toggleConfirm(category) {
  if (!allConfirmed(category)) {
    return add({ verb: "confirm", targets: [category.name] }, `Confirmed ${category.shown}.`);
  }
  for (const number of confirmations(category).reverse()) edits.splice(number, 1);
  changed();
  say(`${category.shown} is no longer confirmed.`);
}

function undo() {
  const words = state.steps.at(-1);
  edits.pop();
  changed();
  say(`Took back: ${words}.`);
}

function discard() {
  const count = edits.length;
  edits.splice(0);
  changed();
  say(`Discarded ${many(count, "edit")}.`);
}
