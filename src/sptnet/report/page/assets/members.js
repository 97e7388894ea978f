// Dialog with all images of one category, where images can be marked as wrong or confirmed.
let opened = null;

function openMembers(key) {
  opened = key;
  drawMembers();
  byId("members-body").scrollTop = 0;
  if (byId("members").open) return;
  openDialog(byId("members"), () => findCard(key)?.querySelector(".open"));
  byId("members-body").focus();
}

function drawMembers() {
  const category = state.byKey.get(opened);
  const images = membersOf(category);
  const sure = images.filter((image) => !data.images.doubtful[image]);
  const doubtful = images.filter((image) => data.images.doubtful[image]);
  const total = category.parts.reduce((sum, part) => sum + data.categories[part].size, 0);
  byId("members-title").textContent = category.shown;
  const some = images.length < total ? `${numbers.format(images.length)} of ` : "";
  byId("members-note").textContent = `${some}${many(total, "image")}, the most certain first`;
  const body = byId("members-body");
  body.replaceChildren();
  const list = (part) => make("ul", { class: "tiles", "data-part": part });
  const first = list("sure");
  const last = list("doubtful");
  body.append(first);
  fillSlowly(first, sure, tile, 120, body);
  if (doubtful.length) {
    body.append(make("h3", { text: `Doubtful (${numbers.format(doubtful.length)})` }), last);
    fillSlowly(last, doubtful, tile, 120, body);
  }
}

function tile(image) {
  const doubtful = data.images.doubtful[image];
  const name = imageName(image);
  const frame = make("div", { class: "frame" }, picture(image));
  if (doubtful) frame.append(make("span", { class: "tag doubt", text: "doubtful" }));
  const wrong = button("Wrong", () => toggleWrong(image), { class: "wrong", "aria-label": `${name} is wrong here` });
  const right = button("Confirm", () => toggleConfirmImage(image), {
    class: "right",
    "aria-label": `${name} is right here: confirm`,
  });
  const certainty = make("span", { title: "certainty", text: share(data.images.certainty[image]) });
  const foot = make("div", { class: "foot" }, certainty, right, wrong);
  const item = make("li", { class: "tile", "data-image": image }, frame, make("p", { text: name, title: name }), foot);
  showMark(item);
  return item;
}

function showMark(item) {
  const image = Number(item.dataset.image);
  const marked = state.dropped.has(image);
  const right = item.querySelector(".right");
  const confirmed = !marked && isConfirmed(image, partOf[image], state.confirmed);
  item.classList.toggle("marked", marked);
  item.querySelector(".wrong").setAttribute("aria-pressed", marked);
  right.setAttribute("aria-pressed", confirmed);
  right.disabled = marked || (confirmed && !state.confirmed.images.has(image));
}

watchers.push(() => {
  if (!byId("members").open) return;
  document.querySelectorAll("#members .tile").forEach(showMark);
});
