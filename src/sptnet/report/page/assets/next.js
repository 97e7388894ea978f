// What to do next: how much of every step is done.
const PLACEHOLDER = /^new-\d+$/;

// Returns [done, all] for every step.
const PROGRESS = {
  name() {
    const fresh = state.categories.filter((category) => category.isNew && category.size);
    return [fresh.filter((category) => !PLACEHOLDER.test(category.name)).length, fresh.length];
  },
  unsure: () => [decided(data.unsure), data.unsure.length],
  check: () => [decided(data.to_check.map((one) => one.image)), data.to_check.length],
  confirm() {
    const filled = state.categories.filter((category) => category.size);
    return [filled.filter(allConfirmed).length, filled.length];
  },
  save: () => [Number(isSaved()), Number(edits.length > 0)],
};

// Confirmed, moved or marked as wrong.
const decided = (images) => images.filter((image) => isConfirmed(image) || isDropped(image)).length;

function drawNext() {
  for (const item of document.querySelectorAll("#next li")) {
    const [done, all] = PROGRESS[item.dataset.step]();
    item.querySelector(".done")?.remove();
    item.classList.toggle("all-done", all > 0 && done === all);
    if (!done || item.dataset.step === "save" && !all) continue;
    const text = done === all ? "✓ done" : `${numbers.format(done)} of ${numbers.format(all)} done`;
    item.append(make("span", { class: "done", text }));
  }
}

for (const link of document.querySelectorAll("#next [data-kind]")) {
  link.addEventListener("click", () => {
    byId("doubtful").checked = false;
    document.querySelector(`input[name=kind][value=${link.dataset.kind}]`).checked = true;
    filterChanged();
  });
}
byId("to-edits").addEventListener("click", (event) => {
  event.preventDefault();
  if (edits.length) byId("save").focus();
  else {
    const text = "There are no edits yet.";
    byId("to-edits").closest("li").querySelector(".done")?.remove();
    byId("to-edits").closest("li").append(make("span", { class: "done none", text }));
    say(text);
  }
});
watchers.push(drawNext);
