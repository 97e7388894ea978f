// The categories of the run with the edits made on the page. Edits are kept in order and replayed on every change;
// each is saved with the names at the time it was made, as `sptnet edit RUN apply` expects.
const edits = [];
const watchers = [];
const partOf = new Int32Array(data.images.id.length); // category of the run, before the edits made on the page
data.categories.forEach((base, key) => base.members.forEach((image) => { partOf[image] = key; }));
let state = replay();

function replay() {
  const current = data.categories.map((base, key) => {
    return { key, name: base.name, shown: base.shown ?? base.name, isNew: base.new, parts: [key] };
  });
  const home = data.categories.map((_, key) => key);
  const dropped = new Set();
  const confirmed = { parts: new Set(), images: new Set() };
  for (const edit of edits) {
    if (edit.kind === "rename") current[edit.key].name = current[edit.key].shown = edit.json.to;
    if (edit.kind === "drop") dropped.add(edit.image);
    if (edit.kind === "confirm") edit.parts.forEach((part) => confirmed.parts.add(part));
    if (edit.kind === "confirm image") confirmed.images.add(edit.image);
    if (edit.kind === "merge") {
      const [from, into] = [current[edit.key], current[edit.into]];
      into.parts = [...into.parts, ...from.parts];
      into.isNew = into.isNew && from.isNew;
      for (const part of from.parts) home[part] = into.key;
      current[edit.key] = null;
    }
  }
  const categoryOf = partOf.map((part) => home[part]);
  const categories = current.filter((category) => category !== null).map((one) => counted(one, dropped, confirmed));
  categories.sort((a, b) => a.isNew === b.isNew ? b.size - a.size || a.key - b.key : a.isNew ? -1 : 1);
  const byKey = new Map(categories.map((category) => [category.key, category]));
  return { categories, byKey, home, dropped, confirmed, categoryOf };
}

function isDoubtful(image) {
  return data.images.doubtful[image] === 1;
}

// Confirmed on the page or before; `part` is the category of the run that holds the image.
function isConfirmed(image, part, confirmed) {
  return data.images.confirmed[image] === 1 || confirmed.parts.has(part) || confirmed.images.has(image);
}

function counted(category, dropped, confirmed) {
  const bases = category.parts.map((part) => data.categories[part]);
  const gone = bases.flatMap((base) => base.members).filter((image) => dropped.has(image));
  const before = bases.reduce((sum, base) => sum + base.size, 0);
  const certain = bases.reduce((sum, base) => sum + base.size * (base.certainty ?? 0), 0);
  const size = before - gone.length;
  const lost = gone.reduce((sum, image) => sum + data.images.certainty[image], 0);
  const sure = category.parts.reduce((sum, part) => {
    const { members, size: all, confirmed: already } = data.categories[part];
    const absent = members.filter((image) => dropped.has(image) && isConfirmed(image, part, confirmed)).length;
    if (confirmed.parts.has(part)) return sum + all - absent;
    const fresh = members.filter((image) => confirmed.images.has(image) && !data.images.confirmed[image]).length;
    return sum + already + fresh - absent;
  }, 0);
  return {
    ...category,
    size,
    certainty: size ? Math.min(1, Math.max(0, (certain - lost) / size)) : null,
    cohesion: bases.length === 1 ? bases[0].cohesion : null,
    doubtful: bases.reduce((sum, base) => sum + base.doubtful, 0) - gone.filter(isDoubtful).length,
    confirmed: sure,
  };
}

// Categories without images are not shown, but their names are taken.
const hasImages = (category) => category.parts.some((part) => data.categories[part].size > 0);

// The most certain first, doubtful ones last.
function membersOf(category) {
  const all = category.parts.flatMap((part) => data.categories[part].members);
  const { doubtful, certainty } = data.images;
  if (category.parts.length === 1) return all;
  return all.sort((a, b) => doubtful[a] - doubtful[b] || certainty[b] - certainty[a]);
}

function representativesOf(category, most) {
  const kept = (image) => image !== undefined && !state.dropped.has(image);
  const lists = category.parts.map((part) => data.categories[part].representatives.filter(kept));
  const mixed = [];
  for (let rank = 0; rank < 12 && mixed.length < most; rank += 1) {
    mixed.push(...lists.map((list) => list[rank]).filter(kept));
  }
  return mixed.slice(0, most);
}

function nearestOf(category) {
  const nearest = data.categories[category.parts[0]].nearest;
  const key = nearest === null ? null : state.home[nearest];
  return key === null || key === category.key ? null : state.byKey.get(key);
}

function changed() {
  state = replay();
  for (const watcher of watchers) watcher();
}

// The same rules as on the command line; returns "" for a valid name.
function nameProblem(name, category) {
  if (!name || name !== name.trim() || [...name].length > 100) return "Give 1 to 100 characters.";
  if (/\p{C}|(?! )\p{Z}|[/\\]/u.test(name) || name.startsWith(".")) {
    return "Names become folders: no slashes, no control characters, no dot at the beginning.";
  }
  if (state.categories.some((other) => other.name === name && other.key !== category.key)) {
    return "Another category has this name. To put both together, merge them.";
  }
  return "";
}

function rename(category, to) {
  const json = { verb: "rename", category: category.name, to };
  edits.push({ kind: "rename", key: category.key, json, text: `rename ${category.shown} to ${to}` });
  changed();
  say(`Renamed ${category.shown} to ${to}.`);
}

function merge(from, into) {
  const json = { verb: "merge", categories: [from.name], into: into.name };
  const text = `merge ${from.shown} into ${into.shown}`;
  edits.push({ kind: "merge", key: from.key, into: into.key, json, text });
  changed();
  say(`Merged ${from.shown} into ${into.shown}.`);
}

// Marks are independent of other edits, so they can be removed in any order.
function toggleWrong(image) {
  const json = { verb: "drop", images: [data.images.id[image]] };
  const index = edits.findIndex((edit) => edit.kind === "drop" && edit.image === image);
  if (index >= 0) edits.splice(index, 1);
  else edits.push({ kind: "drop", image, json, text: `drop ${imageName(image)} as wrong` });
  changed();
  say(index >= 0 ? `${imageName(image)} is no longer marked as wrong.` : `Marked ${imageName(image)} as wrong.`);
}

const allConfirmed = (category) => category.size > 0 && category.confirmed === category.size;

const confirms = (edit, category) =>
  edit.kind === "confirm" && edit.parts.some((part) => category.parts.includes(part));

// A confirmed category is taken back as a whole, in whatever steps it was confirmed.
function toggleConfirm(category) {
  const before = allConfirmed(category);
  if (before) edits.splice(0, edits.length, ...edits.filter((edit) => !confirms(edit, category)));
  else {
    const json = { verb: "confirm", targets: [category.name] };
    edits.push({ kind: "confirm", parts: [...category.parts], json, text: `confirm ${category.shown}` });
  }
  changed();
  say(before ? `${category.shown} is no longer confirmed.` : `Confirmed ${category.shown}.`);
}

function toggleConfirmImage(image) {
  const json = { verb: "confirm", targets: [data.images.id[image]] };
  const index = edits.findIndex((edit) => edit.kind === "confirm image" && edit.image === image);
  if (index >= 0) edits.splice(index, 1);
  else edits.push({ kind: "confirm image", image, json, text: `confirm ${imageName(image)}` });
  changed();
  say(index >= 0 ? `${imageName(image)} is no longer confirmed.` : `Confirmed ${imageName(image)}.`);
}

function undo() {
  const last = edits.pop();
  changed();
  say(`Took back: ${last.text}.`);
}
