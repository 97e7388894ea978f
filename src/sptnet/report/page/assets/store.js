// The categories of the run with the edits made on the page. Edits are kept in the form in which they are saved, in
// order, with the names at the time each was made; they are replayed on every change as `sptnet edit RUN apply` does.
const edits = [];
const watchers = [];
const partOf = new Int32Array(data.images.id.length); // category of the run, before the edits made on the page
data.categories.forEach((base, key) => base.members.forEach((image) => { partOf[image] = key; }));
const numberOf = new Map(data.images.id.map((id, image) => [id, image]));

// Of a large run the page holds some images only; the others are known by their numbers.
for (const base of data.categories) {
  const { certainty, doubtful, confirmed, part } = data.images;
  const rest = (all, of) => base.size === base.members.length ? 0 : all - base.members.reduce((sum, i) => sum + of(i), 0);
  base.absent = {
    size: rest(base.size, () => 1),
    certainty: rest(base.size * (base.certainty ?? 0), (image) => certainty[image]),
    doubtful: rest(base.doubtful, (image) => doubtful[image]),
    confirmed: rest(base.confirmed, (image) => confirmed[image]),
    labels: rest(base.labels, (image) => Number(part[image] === "l")),
    unsorted: rest(base.unsorted, (image) => Number(part[image] === "u")),
  };
}

function replay() {
  const next = {
    all: data.categories.map((base, key) => (
      { key, name: base.name, shown: base.shown ?? base.name, isNew: base.new, parts: [key] })),
    home: data.categories.map((_, key) => key), // category that a category has become by merging
    where: Int32Array.from(partOf), // category of every image; that of a dropped image is the one it was in
    dropped: new Map(), // image -> number of the edit that dropped it
    confirmed: new Map(), // image -> number of the edit that confirmed this image by name, else -1
    wholes: [], // confirmations of whole categories: number of the edit and key of the category
    whole: new Set(), // categories of the run whose images are all confirmed, also those that the page does not hold
    steps: [], // what every edit did, in words; null for an edit that does not fit
  };
  data.images.confirmed.forEach((yes, image) => { if (yes) next.confirmed.set(image, -1); });
  edits.forEach((edit, number) => next.steps.push(STEPS[edit.verb]?.(next, edit, number) ?? null));
  const members = next.all.map(() => []);
  next.where.forEach((key, image) => members[key].push(image));
  next.categories = next.all.filter((one) => one !== null).map((one) => counted(one, members[one.key], next));
  next.categories.sort((a, b) => a.isNew === b.isNew ? b.size - a.size || a.key - b.key : a.isNew ? -1 : 1);
  next.byKey = new Map(next.categories.map((category) => [category.key, category]));
  return next;
}

function counted(category, members, next) {
  const present = members.filter((image) => !next.dropped.has(image));
  const bases = category.parts.map((part) => data.categories[part]);
  const absent = bases.reduce((sum, base) => sum + base.absent.size, 0);
  const surely = category.parts.reduce((sum, part) => {
    const { size, confirmed } = data.categories[part].absent;
    return sum + (next.whole.has(part) ? size : confirmed);
  }, 0);
  const size = absent + present.length;
  const certain = bases.reduce((sum, base) => sum + base.absent.certainty, 0)
    + present.reduce((sum, image) => sum + (next.confirmed.has(image) ? 1 : data.images.certainty[image]), 0);
  const doubts = present.filter((image) => data.images.doubtful[image] && !next.confirmed.has(image)).length;
  return {
    ...category,
    members,
    size,
    certainty: size ? Math.min(1, Math.max(0, certain / size)) : null,
    expected: expectedShare(bases, present, next),
    doubtful: bases.reduce((sum, base) => sum + base.absent.doubtful, 0) + doubts,
    labels: bases.reduce((sum, base) => sum + base.absent.labels, 0) + present.filter((i) => isLabel(i, next)).length,
    confirmed: surely + present.filter((image) => next.confirmed.has(image)).length,
  };
}

// The expected share of right images among the unsorted ones; null if the run does not know it.
function expectedShare(bases, present, next) {
  let [images, right] = [0, 0];
  for (const { expected, absent } of bases) {
    if (expected === null) continue;
    images += absent.unsorted;
    right += absent.unsorted * expected;
  }
  for (const image of present) {
    const expected = next.confirmed.has(image) ? 1 : data.categories[partOf[image]].expected;
    if (data.images.part[image] !== "u" || data.categories[partOf[image]].expected === null) continue;
    images += 1;
    right += expected;
  }
  return images ? right / images : null;
}

// Each takes the state, an edit and its number; it changes the state and returns words, or null if the edit does not fit.
const STEPS = {
  rename(next, { category: name, to }) {
    const category = called(next, name);
    if (!category || called(next, to)) return null;
    const words = `rename ${category.shown} to ${to}`;
    category.name = category.shown = to;
    return words;
  },
  merge(next, { categories, into: target }) {
    const [from, into] = [called(next, categories[0]), called(next, target)];
    if (!from || !into || from === into || categories.length > 1) return null;
    const words = `merge ${from.shown} into ${into.shown}`;
    into.parts = [...into.parts, ...from.parts];
    into.isNew = into.isNew && from.isNew;
    next.home.forEach((key, category) => { if (key === from.key) next.home[category] = into.key; });
    next.where.forEach((key, image) => { if (key === from.key) next.where[image] = into.key; });
    next.all[from.key] = null;
    return words;
  },
  move(next, { images: ids, to, create }) {
    const images = known(ids);
    let category = called(next, to);
    if (!images || (!category && !create)) return null;
    if (!category) {
      category = { key: next.all.length, name: to, shown: to, isNew: true, parts: [] };
      next.all.push(category);
      next.home.push(category.key);
    }
    for (const image of images) {
      next.where[image] = category.key;
      next.dropped.delete(image);
      next.confirmed.set(image, -1);
    }
    return `move ${named(images)} to ${category.shown}`;
  },
  drop(next, { images: ids }, number) {
    const images = known(ids);
    if (!images) return null;
    for (const image of images) {
      next.dropped.set(image, number);
      next.confirmed.delete(image);
    }
    return `drop ${named(images)} as wrong`;
  },
  confirm(next, { targets }, number) {
    const category = targets.length === 1 ? called(next, targets[0]) : null;
    const images = category ? [] : known(targets);
    if (!images || images.some((image) => next.dropped.has(image))) return null;
    if (!category) {
      for (const image of images) if (!next.confirmed.has(image)) next.confirmed.set(image, number);
      return `confirm ${named(images)}`;
    }
    next.where.forEach((key, image) => {
      if (key === category.key && !next.dropped.has(image)) next.confirmed.set(image, -1);
    });
    for (const part of category.parts) next.whole.add(part);
    next.wholes.push({ number, key: category.key });
    return `confirm ${category.shown}`;
  },
};

const called = (next, name) => next.all.find((category) => category?.name === name);

function known(ids) {
  const images = ids.map((id) => numberOf.get(id));
  return images.includes(undefined) ? null : images;
}

const named = (images) =>
  images.length === 1 ? imageName(images[0]) : `${many(images.length, "image")} (${some(images.map(imageName))})`;

const isConfirmed = (image) => state.confirmed.has(image);
const isDropped = (image) => state.dropped.has(image);
const isDoubtful = (image) => data.images.doubtful[image] === 1 && !isConfirmed(image);
const isLabel = (image, next = state) => data.images.part[image] === "l" && next.home[partOf[image]] === next.where[image];
const certaintyOf = (image) => (isConfirmed(image) ? 1 : data.images.certainty[image]);
const categoryOf = (image) => state.byKey.get(state.where[image]);
const allConfirmed = (category) => category.size > 0 && category.confirmed === category.size;

// Categories without images are not shown, but their names are taken.
const hasImages = (category) => category.size > 0 || category.members.length > 0;

// The most typical images of the category, those of merged ones in turn, then the most certain ones.
function representativesOf(category, most) {
  const here = (image) => state.where[image] === category.key && !isDropped(image);
  const lists = category.parts.map((part) => data.categories[part].representatives);
  const chosen = new Set();
  for (let rank = 0; rank < 12; rank += 1) {
    for (const list of lists) if (list[rank] !== undefined && here(list[rank])) chosen.add(list[rank]);
  }
  if (chosen.size < most) {
    const rest = category.members.filter(here).sort((a, b) => certaintyOf(b) - certaintyOf(a));
    for (const image of rest) chosen.add(image);
  }
  return [...chosen].slice(0, most);
}

function nearestOf(category) {
  const nearest = category.parts.length ? data.categories[category.parts[0]].nearest : null;
  const key = nearest === null ? null : state.home[nearest];
  return key === null || key === category.key ? null : state.byKey.get(key);
}

let state = replay();
