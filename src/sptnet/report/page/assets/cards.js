// Cards of the categories: filter, open, confirm, rename, merge by dragging or from a list.
const CARD_PICTURES = 8;
const FIRST_CARDS = 24;
const MEANING = {
  "mean certainty": "mean probability that the category of an image is right; 1 for labels",
  "expected right": "share of the unsorted images here that should be right",
  cohesion: "mean cosine between the images and the mean direction of the category; 1 means all alike",
  "nearest known": "the known category that looks most alike",
  confirmed: "images that a person confirmed or moved here; they are labels of the next round",
};
let dragged = null;
let allCards = false;

function passesFilter(category) {
  const text = byId("filter").value.trim().toLocaleLowerCase();
  const kind = document.querySelector("input[name=kind]:checked").value;
  const fits = { all: true, new: category.isNew, known: !category.isNew, doubtful: category.doubtful > 0 }[kind];
  return fits && category.shown.toLocaleLowerCase().includes(text);
}

function drawCards() {
  const all = state.categories.filter(hasImages);
  const fitting = all.filter(passesFilter);
  const shown = allCards ? fitting : fitting.slice(0, FIRST_CARDS);
  byId("cards").replaceChildren(...shown.map(card));
  byId("more-cards").hidden = shown.length === fitting.length;
  byId("more-cards").textContent = `Show all ${many(fitting.length, "category", "categories")}`;
  const total = many(all.length, "category", "categories");
  byId("showing").textContent = fitting.length === all.length ? total : `${numbers.format(fitting.length)} of ${total}`;
}

function drawAllCards() {
  allCards = true;
  drawCards();
}

function findCard(key) {
  const find = () => document.querySelector(`.card[data-key="${key}"]`);
  if (!find() && !allCards) drawAllCards();
  return find();
}

function focusCard(key) {
  findCard(key)?.querySelector(".open").focus();
}

function focusConfirm(key) {
  findCard(key)?.querySelector(".confirm").focus();
}

function card(category) {
  const label = `${category.shown}, ${many(category.size, "image")}: open`;
  const open = button(category.shown, () => openMembers(category.key), { class: "open", "aria-label": label });
  const nearest = nearestOf(category);
  const rows = {
    images: numbers.format(category.size),
    "mean certainty": share(category.certainty),
    ...expectedRow(category),
    cohesion: share(category.cohesion),
    "nearest known": nearest ? nearest.shown : "–",
  };
  const best = representativesOf(category, CARD_PICTURES).map((image) => picture(image, ""));
  const strip = make("div", { class: "strip", "aria-hidden": "true" }, ...best);
  const tag = make("span", { class: category.isNew ? "tag new" : "tag", text: category.isNew ? "new" : "known" });
  const head = make("div", { class: "card-head" }, make("h3", {}, open), tag);
  const list = make("dl", { class: "numbers" });
  for (const [word, value] of Object.entries(rows)) {
    list.append(make("dt", { text: word, title: MEANING[word] }), make("dd", { text: value }));
  }
  if (category.doubtful) {
    const count = make("span", { class: "tag doubt", text: numbers.format(category.doubtful) });
    list.append(make("dt", { text: "doubtful" }), make("dd", {}, count));
  }
  if (category.confirmed) {
    const count = make("span", { class: "tag new", text: numbers.format(category.confirmed) });
    list.append(make("dt", { text: "confirmed", title: MEANING.confirmed }), make("dd", {}, count));
  }
  const done = allConfirmed(category);
  const taken = done && edits.some((edit) => confirms(edit, category));
  const actions = make("div", { class: "actions" },
    button("Rename", () => startRename(category), { class: "quiet", "aria-label": `Rename ${category.shown}` }),
    button("Merge into…", () => chooseMerge(category), {
      class: "quiet",
      "aria-label": `Merge ${category.shown} into another category`,
      disabled: state.categories.filter(hasImages).length < 2,
    }),
    button("Confirm", () => { toggleConfirm(category); focusConfirm(category.key); }, {
      class: "quiet confirm",
      "aria-label": `Confirm all images of ${category.shown}`,
      "aria-pressed": String(done),
      disabled: category.size === 0 || (done && !taken),
    }));
  const body = make("div", { class: "card-body" }, head, list);
  const item = make("li", { class: "card", "data-key": category.key, draggable: "true" }, strip, body, actions);
  item.addEventListener("click", (event) => {
    if (!event.target.closest("button, input, form")) openMembers(category.key);
  });
  makeDraggable(item, category.key);
  return item;
}

// Categories without unsorted images, and runs without an expectation, have no such row.
function expectedRow(category) {
  const bases = category.parts.map((part) => data.categories[part]).filter((base) => base.expected !== null);
  const images = bases.reduce((sum, base) => sum + base.unsorted, 0);
  const right = bases.reduce((sum, base) => sum + base.unsorted * base.expected, 0);
  return images ? { "expected right": `${Math.round((100 * right) / images)} %` } : {};
}

function makeDraggable(item, key) {
  const accepts = () => dragged !== null && dragged !== key;
  item.addEventListener("dragstart", (event) => {
    dragged = key;
    event.dataTransfer.setData("text/plain", String(key));
    event.dataTransfer.effectAllowed = "move";
    item.classList.add("dragged");
  });
  item.addEventListener("dragend", () => {
    dragged = null;
    for (const one of document.querySelectorAll(".dragged, .target")) one.classList.remove("dragged", "target");
  });
  item.addEventListener("dragover", (event) => {
    if (!accepts()) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "move";
    item.classList.add("target");
  });
  item.addEventListener("dragleave", (event) => {
    if (!item.contains(event.relatedTarget)) item.classList.remove("target");
  });
  item.addEventListener("drop", (event) => {
    if (!accepts()) return;
    event.preventDefault();
    const from = state.byKey.get(dragged);
    dragged = null;
    merge(from, state.byKey.get(key));
    focusCard(key);
  });
}

function startRename(category) {
  const item = findCard(category.key);
  const label = `New name of ${category.shown}`;
  const input = make("input", { type: "text", "aria-label": label, autocomplete: "off", spellcheck: "false" });
  input.value = category.shown === category.name ? category.name : "";
  const problem = make("p", { class: "error", role: "alert" });
  const save = make("button", { type: "submit", class: "main", text: "Save" });
  const choice = make("div", {}, save, button("Cancel", stop, { class: "quiet" }));
  const form = make("form", { class: "rename" }, input, problem, choice);
  function stop() {
    drawCards();
    focusCard(category.key);
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const to = input.value.trim();
    problem.textContent = nameProblem(to, category);
    if (problem.textContent) return input.focus();
    if (to === category.name) return stop();
    rename(category, to);
    focusCard(category.key);
  });
  form.addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
  item.draggable = false;
  item.querySelector(".card-head").replaceChildren(form);
  input.focus();
  input.select();
}

function chooseMerge(category) {
  const dialog = byId("merge");
  byId("merge-title").textContent = `Merge ${category.shown}`;
  const others = state.categories.filter((other) => hasImages(other) && other.key !== category.key);
  const option = (other) => make("option", { value: other.key, text: `${other.shown} (${many(other.size, "image")})` });
  byId("merge-into").replaceChildren(...others.map(option));
  dialog.returnValue = "";
  dialog.onclose = () => {
    if (dialog.returnValue !== "merge") return;
    const into = state.byKey.get(Number(byId("merge-into").value));
    merge(category, into);
    focusCard(into.key);
  };
  openDialog(dialog);
  byId("merge-into").focus();
}

watchers.push(drawCards);
byId("more-cards").addEventListener("click", () => {
  drawAllCards();
  document.querySelectorAll(".card .open")[FIRST_CARDS].focus();
});
byId("filter").addEventListener("input", drawCards);
byId("kinds").addEventListener("change", drawCards);
