// Cards of the categories: filter, open, confirm, rename, merge by dragging or from a list.
const CARD_PICTURES = 8;
const FIRST_CARDS = 24;
let dragged = null;
let allCards = false;

function passesFilter(category) {
  const text = byId("filter").value.trim().toLocaleLowerCase();
  const kind = document.querySelector("input[name=kind]:checked").value;
  const fits = { all: true, new: category.isNew, known: !category.isNew }[kind];
  return fits && category.shown.toLocaleLowerCase().includes(text);
}

// Doubtful when the page was written: an image stays in the list when it is confirmed, so that nothing jumps.
function doubtfulImages() {
  const fitting = new Set(state.categories.filter(passesFilter).map((category) => category.key));
  return [...data.images.id.keys()].filter((image) => data.images.doubtful[image] && fitting.has(state.where[image]));
}

const doubtfulGallery = new Gallery(byId("doubtful-list"), {
  source: doubtfulImages, sort: "unsure", sorts: true, words: (image) => [homeOf(image)],
});

function drawCards() {
  const onlyDoubtful = byId("doubtful").checked;
  const all = state.categories.filter(hasImages);
  const fitting = all.filter(passesFilter);
  const shown = allCards ? fitting : fitting.slice(0, FIRST_CARDS);
  byId("cards").hidden = onlyDoubtful;
  byId("doubtful-list").hidden = !onlyDoubtful;
  byId("cards").replaceChildren(...shown.map(card));
  byId("more-cards").hidden = onlyDoubtful || shown.length === fitting.length;
  byId("more-cards").textContent = `Show all ${many(fitting.length, "category", "categories")}`;
  const total = many(all.length, "category", "categories");
  const open = fitting.reduce((sum, category) => sum + category.doubtful, 0);
  const some = fitting.length === all.length ? total : `${numbers.format(fitting.length)} of ${total}`;
  byId("showing").textContent = onlyDoubtful ? `${many(open, "doubtful image")} in ${some}` : some;
}

function filterChanged() {
  drawCards();
  if (byId("doubtful").checked) doubtfulGallery.draw();
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
  const open = button("", () => openMembers(category.key), { class: "open", "aria-label": label, title: category.shown });
  open.append(make("span", { text: category.shown }));
  const nearest = nearestOf(category);
  const rows = { images: numbers.format(category.size) };
  if (category.expected !== null) rows["should be right"] = `${Math.round(100 * category.expected)} %`;
  else rows.certainty = percent(category.certainty);
  if (category.isNew && nearest) rows["looks most like"] = nearest.shown;
  const tag = make("span", { class: category.isNew ? "tag new" : "tag", text: category.isNew ? "new" : "known" });
  const head = make("div", { class: "card-head" }, make("h3", {}, open), tag);
  const list = make("dl", { class: "numbers" });
  for (const [word, value] of Object.entries(rows)) list.append(make("dt", { text: word }), make("dd", { class: "words", text: value, title: value }));
  for (const [word, count, kind] of [["doubtful", category.doubtful, "doubt"], ["your labels", category.labels, "label"], ["confirmed", category.confirmed, "new"]]) {
    if (!count) continue;
    list.append(make("dt", { text: word }), make("dd", {}, make("span", { class: `tag ${kind}`, text: numbers.format(count) })));
  }
  const done = allConfirmed(category);
  const taken = done && confirmations(category).length > 0;
  const actions = make("div", { class: "actions" },
    button("Rename", () => startRename(category), { class: "quiet", "aria-label": `Rename ${category.shown}` }),
    button("Merge into…", () => chooseMerge(category), {
      class: "quiet",
      "aria-label": `Merge into… another category: ${category.shown}`,
      disabled: state.categories.filter(hasImages).length < 2,
    }),
    button("Confirm", () => { toggleConfirm(category); focusConfirm(category.key); }, {
      class: "quiet confirm",
      "aria-label": `Confirm all images of ${category.shown}`,
      "aria-pressed": String(done),
      disabled: category.size === 0 || (done && !taken),
    }));
  const body = make("div", { class: "card-body" }, head, list);
  const item = make("li", { class: "card", "data-key": category.key, draggable: "true" }, strip(category), body, actions);
  item.addEventListener("click", (event) => {
    if (!event.target.closest("button, input, form")) openMembers(category.key);
  });
  makeDraggable(item, category.key);
  return item;
}

// Eight small pictures, one large and four small, two large, or one: always the same area without empty places.
function strip(category) {
  const images = representativesOf(category, CARD_PICTURES);
  const count = [8, 5, 2, 1, 0].find((size) => size <= images.length);
  const shown = images.slice(0, count).map((image) => picture(image, ""));
  if (count === 0) shown.push(make("span", { class: "note", text: "no images left" }));
  return make("div", { class: `strip of-${count}`, "aria-hidden": "true" }, ...shown);
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
byId("filter").addEventListener("input", filterChanged);
byId("kinds").addEventListener("change", filterChanged);
byId("doubtful").addEventListener("change", filterChanged);
