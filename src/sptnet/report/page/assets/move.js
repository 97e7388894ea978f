// Dialog to move images to another category, or to split them off into a new one.
const NEW = "new";
let moving = { images: [], done: () => {} };

// `done` is called after the images have been moved.
function openMove(images, isNew = false, fallback = () => null, done = () => {}) {
  if (images.length === 0) return;
  moving = { images, done };
  const homes = new Set(images.map((image) => (isDropped(image) ? -1 : state.where[image])));
  const others = state.categories.filter((one) => hasImages(one) && !(homes.size === 1 && homes.has(one.key)));
  const option = (one) => make("option", { value: one.key, text: `${one.shown} (${many(one.size, "image")})` });
  byId("move-title").textContent = images.length === 1 ? `Move ${imageName(images[0])}` : `Move ${many(images.length, "image")}`;
  byId("move-to").replaceChildren(make("option", { value: NEW, text: "a new category" }), ...others.map(option));
  const second = data.images.second[images[0]];
  const likely = second >= 0 ? others.find((one) => one.key === state.home[second]) : undefined;
  byId("move-to").value = isNew ? NEW : String((likely ?? others[0])?.key ?? NEW);
  byId("move-name").value = freeName();
  byId("move-problem").textContent = "";
  drawMoveName();
  openDialog(byId("move"), fallback);
  byId(isNew ? "move-name" : "move-to").focus();
  if (isNew) byId("move-name").select();
}

function drawMoveName() {
  byId("move-new").hidden = byId("move-to").value !== NEW;
}

byId("move-to").addEventListener("change", drawMoveName);
byId("move").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const isNew = byId("move-to").value === NEW;
  const name = isNew ? byId("move-name").value.trim() : state.byKey.get(Number(byId("move-to").value)).name;
  byId("move-problem").textContent = isNew ? nameProblem(name) : "";
  if (byId("move-problem").textContent) return byId("move-name").focus();
  moveImages(moving.images, name, isNew);
  moving.done();
  byId("move").close();
});
