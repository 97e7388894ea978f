// One image enlarged, with its certainty, its second choice and the reason why it is where it is.
const lightbox = { images: [], at: 0, back: () => {} };

// `back` is called with the last image on closing, to focus its tile.
function openLight(images, at, back = () => {}) {
  Object.assign(lightbox, { images: [...images], at, back });
  drawLight();
  if (!byId("light").open) byId("light").showModal();
  byId(lightbox.at < lightbox.images.length - 1 ? "light-after" : "light-before").focus();
}

const current = () => lightbox.images[lightbox.at];

// Badges are words, not colours alone.
function badges(image) {
  const tags = [];
  if (isDropped(image)) tags.push(["bad", "wrong"]);
  else if (isLabel(image)) tags.push(["label", "your label"]);
  else if (isConfirmed(image)) tags.push(["new", state.where[image] === state.home[partOf[image]] ? "confirmed" : "moved"]);
  else if (isDoubtful(image)) tags.push(["doubt", "doubtful"]);
  return tags.map(([kind, text]) => make("span", { class: `tag ${kind}`, text }));
}

// Why the image is in its category, in words.
function reason(image) {
  const category = categoryOf(image).shown;
  const certainty = percent(certaintyOf(image));
  const contradicted = data.to_check.find((one) => one.image === image);
  if (isDropped(image)) return `You marked it as wrong. It was in ${category}.`;
  if (state.where[image] !== state.home[partOf[image]]) return "You moved it here.";
  if (isLabel(image)) {
    const guess = contradicted && state.byKey.get(state.home[contradicted.guess]).shown;
    const rival = contradicted ? ` But it looks like ${guess} (${percent(contradicted.certainty)}).` : "";
    return `You labelled it ${category}.${rival}`;
  }
  if (isConfirmed(image)) return "You confirmed it, or moved it here.";
  const aside = { h: " It was kept aside from training.", t: " It was kept aside as a test." }[data.images.part[image]] ?? "";
  if (isDoubtful(image)) return `No category fits well. ${category} fits best, with a certainty of only ${certainty}.${aside}`;
  return `It looks most like the other images of ${category}, with a certainty of ${certainty}.${aside}`;
}

function secondOf(image) {
  const second = data.images.second[image];
  if (second < 0) return null;
  const category = state.byKey.get(state.home[second]);
  return category.key === state.where[image] ? null : category;
}

const timeOf = (image) => data.images.time[image] ?? null;

function facts(image) {
  const second = secondOf(image);
  const rows = [["category", categoryOf(image).shown], ["certainty", percent(certaintyOf(image))]];
  rows.push(["second choice", second ? `${second.shown} (${percent(data.images.second_certainty[image])})` : "none"]);
  rows.push(["why it is here", reason(image)]);
  if (timeOf(image) !== null) rows.push(["time of the file", new Date(1000 * timeOf(image)).toLocaleString()]);
  return rows.flatMap(([word, value]) => [make("dt", { text: word }), make("dd", { text: value })]);
}

function drawLight() {
  const image = current();
  byId("light-title").replaceChildren(...nameParts(imageName(image)));
  byId("light-place").textContent = `${numbers.format(lightbox.at + 1)} of ${many(lightbox.images.length, "image")}`;
  byId("light-picture").replaceChildren(picture(image));
  byId("light-badges").replaceChildren(...badges(image));
  byId("light-facts").replaceChildren(...facts(image));
  byId("light-before").disabled = lightbox.at === 0;
  byId("light-after").disabled = lightbox.at === lightbox.images.length - 1;
  byId("light-right").setAttribute("aria-pressed", String(isConfirmed(image)));
  byId("light-right").disabled = isDropped(image) || (isConfirmed(image) && !canUnconfirm(image));
  byId("light-wrong").setAttribute("aria-pressed", String(isDropped(image)));
}

function step(to) {
  const at = Math.min(lightbox.images.length - 1, Math.max(0, to));
  if (at === lightbox.at) return;
  lightbox.at = at;
  drawLight();
  // A disabled button cannot keep the focus.
  if (document.activeElement?.disabled || document.activeElement === document.body) byId("light-after").focus();
  if (byId("light-after").disabled && document.activeElement !== byId("light-before")) byId("light-before").focus();
}

const ON_LIGHT = {
  ArrowLeft: () => step(lightbox.at - 1),
  ArrowRight: () => step(lightbox.at + 1),
  Home: () => step(0),
  End: () => step(lightbox.images.length - 1),
  c: () => toggleConfirmImage(current()),
  w: () => toggleWrong(current()),
  m: () => openMove([current()], false),
  n: () => openMove([current()], true),
};

byId("light").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in ON_LIGHT)) return;
  event.preventDefault();
  ON_LIGHT[event.key]();
});
byId("light").addEventListener("close", () => lightbox.back(current()));
byId("light-before").addEventListener("click", ON_LIGHT.ArrowLeft);
byId("light-after").addEventListener("click", ON_LIGHT.ArrowRight);
byId("light-right").addEventListener("click", ON_LIGHT.c);
byId("light-wrong").addEventListener("click", ON_LIGHT.w);
byId("light-move").addEventListener("click", ON_LIGHT.m);
byId("light-split").addEventListener("click", ON_LIGHT.n);
byId("light-category").addEventListener("click", () => {
  const key = state.where[current()];
  byId("light").close();
  openMembers(key);
});
watchers.push(() => { if (byId("light").open) drawLight(); });
