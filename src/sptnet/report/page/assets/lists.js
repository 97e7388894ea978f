// Lists of single images from all categories: the least sure ones, and labels that the model contradicts.
const nameOf = (key) => make("span", { "data-category": key, text: state.byKey.get(key).shown });

function unsureItem(image) {
  const key = state.categoryOf[image];
  const certainty = share(data.images.certainty[image]);
  const label = `${imageName(image)}, certainty ${certainty}: open its category`;
  const open = button("", () => openMembers(state.home[key]), { "aria-label": label, title: imageName(image) });
  open.append(picture(image, ""));
  const words = make("p", {}, make("b", { text: certainty }), " ", nameOf(key));
  return make("li", { "data-image": image }, open, words);
}

function checkItem({ image, guess, certainty }) {
  const item = tile(image);
  item.querySelector(".foot span").replaceWith(make("span", { title: "certainty of the model", text: share(certainty) }));
  const words = make("p", { class: "words" }, "labelled ", nameOf(state.categoryOf[image]), ", the model says ", nameOf(guess));
  item.querySelector(".foot").before(words);
  return item;
}

byId("unsure-list")?.append(...data.unsure.map(unsureItem));
byId("check-list")?.append(...data.to_check.map(checkItem));
watchers.push(() => document.querySelectorAll("#check-list .tile").forEach(showMark));
