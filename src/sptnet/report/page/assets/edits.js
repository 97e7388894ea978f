// The list of edits made on the page, and the file for `sptnet edit RUN apply`.
let saved = 0;

function drawEdits() {
  byId("edits").hidden = edits.length === 0;
  byId("edits-title").textContent = many(edits.length, "edit");
  byId("edit-list").replaceChildren(...edits.map((edit) => make("li", { text: edit.text })));
  byId("edit-list").lastElementChild?.scrollIntoView({ block: "nearest" });
}

function saveEdits() {
  const text = JSON.stringify({ edits: edits.map((edit) => edit.json) }, null, 1);
  const address = URL.createObjectURL(new Blob([`${text}\n`], { type: "application/json" }));
  make("a", { href: address, download: "edits.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
  saved = edits.length;
  say(`Saved ${many(edits.length, "edit")} as edits.json.`);
}

async function copyCommand(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    say("Copied the command.");
  } catch {
    getSelection().selectAllChildren(code); // if the browser forbids copying, Ctrl-C works now
    say("The command is selected.");
  }
}

function drawSentence() {
  const filled = state.categories.filter((category) => category.size);
  const sum = (value) => filled.reduce((total, category) => total + value(category), 0);
  const known = filled.filter((category) => !category.isNew).length;
  const dropped = data.dropped + state.dropped.size;
  const parts = [
    many(sum((category) => category.size), "image"),
    many(known, "known category", "known categories"),
    `${numbers.format(filled.length - known)} new`,
    `${numbers.format(sum((category) => category.doubtful))} doubtful`,
  ];
  byId("sentence").textContent = [...parts, ...(dropped ? [`${numbers.format(dropped)} dropped`] : [])].join(", ");
}

function drawNames() {
  for (const element of document.querySelectorAll("[data-category]")) {
    element.textContent = state.byKey.get(state.home[Number(element.dataset.category)]).shown;
  }
}

watchers.push(drawEdits, drawSentence, drawNames, () => { saved = Math.min(saved, edits.length - 1); });
byId("save").addEventListener("click", saveEdits);
for (const copy of document.querySelectorAll("button[data-copy]")) {
  copy.addEventListener("click", () => copyCommand(byId(copy.dataset.copy)));
}
byId("undo").addEventListener("click", () => {
  undo();
  if (edits.length === 0) byId("filter").focus();
});
byId("fold").addEventListener("click", () => {
  const open = byId("edits-body").toggleAttribute("hidden") === false;
  byId("fold").setAttribute("aria-expanded", open);
  byId("fold").textContent = open ? "Hide" : "Show";
});
window.addEventListener("beforeunload", (event) => {
  if (edits.length && saved !== edits.length) event.preventDefault();
});
