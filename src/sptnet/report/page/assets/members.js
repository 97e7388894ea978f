// Dialog with the images of one category, or of one cell of the table of truth.
let opened = { title: () => "", note: "", source: () => [] };
const membersGallery = new Gallery(byId("members-body"), { source: () => opened.source(), sorts: true, shows: true });

function openMembers(key) {
  const members = () => state.byKey.get(state.home[key])?.members ?? [];
  const absent = state.byKey.get(key).parts.reduce((sum, part) => sum + data.categories[part].absent.size, 0);
  const note = absent ? `${numbers.format(members().length)} of ${many(members().length + absent, "image")} are on this page` : "";
  openImages({ title: () => state.byKey.get(state.home[key])?.shown ?? "", note, source: members }, () => findCard(key)?.querySelector(".open"));
}

// The images that a cell of the table counts: those of one true class in one category when the page was written.
function openCell({ truth, part, title, count }) {
  const images = [];
  data.images.truth.forEach((one, image) => {
    if (one === Number(truth) && partOf[image] === Number(part)) images.push(image);
  });
  const rest = Number(count) - images.length;
  const note = rest > 0 ? `${numbers.format(images.length)} of ${many(Number(count), "image")} are on this page` : "";
  openImages({ title: () => `${title} in ${state.byKey.get(state.home[Number(part)]).shown}`, note, source: () => images });
}

function openImages(what, fallback = () => null) {
  opened = what;
  membersGallery.selected.clear();
  membersGallery.active = 0;
  drawMembers();
  membersGallery.draw();
  if (!byId("members").open) openDialog(byId("members"), fallback);
  byId("members-body").scrollTop = 0;
  membersGallery.focus();
}

function drawMembers() {
  byId("members-title").textContent = opened.title();
  byId("members-note").textContent = opened.note;
  byId("members-note").hidden = !opened.note;
}

watchers.push(() => { if (byId("members").open) drawMembers(); });
for (const cell of document.querySelectorAll(".cell")) cell.addEventListener("click", () => openCell(cell.dataset));
