// The list of edits made on the page, and the file for `sptnet edit RUN apply`.
function drawEdits() {
  byId("edits").hidden = edits.length === 0;
  byId("edits-title").textContent = many(edits.length, "edit");
  byId("edit-list").replaceChildren(...state.steps.map((text) => make("li", { text })));
  byId("edit-list").lastElementChild?.scrollIntoView({ block: "nearest" });
  drawKeeping();
}

function drawKeeping() {
  const kept = isKept ? "Kept in this browser until you save them." : "This browser keeps nothing: save before you close the page.";
  byId("then").hidden = !isSaved();
  byId("keeping").textContent = isSaved() ? "Saved as edits.json. Nothing changes until you run the command below." : kept;
}

// The list covers a part of the page, so it is folded until it is asked for, or the command is needed.
function unfold(isOpen) {
  byId("edits-body").hidden = !isOpen;
  byId("fold").setAttribute("aria-expanded", String(isOpen));
  byId("fold").textContent = isOpen ? "Hide" : "Show";
}

// `after` is the number of edits that the page was written with: `apply` skips those that it has applied since.
function saveEdits() {
  const text = JSON.stringify({ run: data.run.id, after: data.run.edits, edits }, null, 1);
  const address = URL.createObjectURL(new Blob([`${text}\n`], { type: "application/json" }));
  make("a", { href: address, download: "edits.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
  savedText = JSON.stringify(edits);
  keep();
  drawKeeping();
  drawNext();
  unfold(true);
  say(`Saved ${many(edits.length, "edit")} as edits.json.`);
}

function askDiscard() {
  byId("sure-words").textContent = `${many(edits.length, "edit")} on this page will be gone. Edits that were applied on the command line stay.`;
  byId("sure").returnValue = "";
  openDialog(byId("sure"), () => byId("filter"));
}

// Returns a word for the button.
async function copyCommand(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    say("Copied the command.");
    return "Copied";
  } catch {
    getSelection().selectAllChildren(code); // if the browser forbids copying, Ctrl-C works now
    say("The command is selected.");
    return "Press Ctrl C";
  }
}

// The same sentence as `in_words` of overview.py.
function drawSentence() {
  const filled = state.categories.filter((category) => category.size);
  const sum = (value) => filled.reduce((total, category) => total + value(category), 0);
  const fresh = filled.filter((category) => category.isNew).length;
  const doubtful = sum((category) => category.doubtful);
  const dropped = data.dropped + state.dropped.size;
  const [low, high] = data.plausible ?? [0, 0];
  const range = low < high ? ` (${numbers.format(low)} to ${numbers.format(high)} are plausible)` : "";
  const images = many(sum((category) => category.size), "image");
  const parts = [
    `${images} in ${many(filled.length, "category", "categories")}${range}: ${numbers.format(filled.length - fresh)} known and ${numbers.format(fresh)} new.`,
    `${many(doubtful, "image is", "images are")} doubtful.`,
  ];
  if (dropped) parts.push(`${many(dropped, "was", "were")} marked as wrong.`);
  byId("sentence").textContent = parts.join(" ");
}

function drawNames() {
  for (const element of document.querySelectorAll("[data-category]")) {
    element.textContent = state.byKey.get(state.home[Number(element.dataset.category)]).shown;
  }
}

// A shell takes a word of these characters as it is; others are quoted.
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

// The folder of the run, if the page is opened from there; else its name. No page holds the path itself.
function runPath() {
  if (!data.run.here || location.protocol !== "file:") return data.run.name;
  try {
    const parts = decodeURIComponent(location.pathname).replace(/^\/(?=[A-Za-z]:)/, "").split("/").slice(0, -1);
    return parts.at(-1) === data.run.name ? parts.join("/") : data.run.name;
  } catch {
    return data.run.name; // a path that is no UTF-8
  }
}

function drawCommands() {
  const path = runPath();
  for (const code of document.querySelectorAll("[data-command]")) {
    const words = data.run.commands[code.dataset.command];
    code.textContent = words.map((word) => quoted(word.replace("{run}", () => path))).join(" ");
  }
}

// The numbers stand in the head of the page: `sptnet edit` writes the second one when it adds edits.
function drawOlder() {
  const mark = document.querySelector("meta[name=sptnet-edits]").content.match(/^(\d+) of (\d+)/);
  const [known, now] = [Number(mark[1]), Number(mark[2])];
  byId("older").hidden = known === now;
  byId("older-words").textContent = `It shows ${numbers.format(known)} of ${many(now, "edit")} in edits.jsonl.`;
}

watchers.push(drawEdits, drawSentence, drawNames);
byId("save").addEventListener("click", saveEdits);
for (const copy of document.querySelectorAll("button[data-copy]")) {
  copy.addEventListener("click", async () => {
    copy.textContent = await copyCommand(byId(copy.dataset.copy));
    setTimeout(() => { copy.textContent = "Copy"; }, 4000);
  });
}
byId("undo").addEventListener("click", () => {
  undo();
  if (edits.length === 0) byId("filter").focus();
});
byId("fold").addEventListener("click", () => unfold(byId("edits-body").hidden));
byId("discard").addEventListener("click", askDiscard);
byId("sure").addEventListener("close", () => {
  if (byId("sure").returnValue !== "discard") return;
  discard();
  byId("filter").focus();
});
