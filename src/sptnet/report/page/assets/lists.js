// Lists of single images from all categories: the least sure ones, labels that look like another category, doubtful ones.
const nameOf = (key) => make("span", { "data-category": key, text: state.byKey.get(state.home[key]).shown });
// The category of an image as edited; drawn anew after every edit.
const homeOf = (image) => make("span", { "data-home": image, text: categoryOf(image).shown });

if (byId("unsure-list")) {
  new Gallery(byId("unsure-list"), {
    source: () => [...data.unsure], sort: null, rows: innerWidth < 600 ? 4 : 2, words: (image) => [homeOf(image)],
  }).draw();
}
if (byId("check-list")) {
  const entries = new Map(data.to_check.map((one) => [one.image, one]));
  new Gallery(byId("check-list"), {
    source: () => data.to_check.map((one) => one.image),
    sort: null,
    rows: 3,
    value: (image) => entries.get(image).certainty,
    words: (image) => [
      make("span", {}, "your label: ", homeOf(image), ", "),
      make("span", {}, "looks like: ", nameOf(entries.get(image).guess)),
    ],
  }).draw();
}
watchers.push(() => {
  for (const element of document.querySelectorAll("[data-home]")) {
    element.textContent = categoryOf(Number(element.dataset.home)).shown;
  }
});
