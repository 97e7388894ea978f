// Light and dark, the pictures in the tables, and the first drawing of everything.
const darkBySystem = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (darkBySystem.matches ? "dark" : "light")) === "dark";

function themeChanged() {
  byId("theme").textContent = isDark() ? "Light" : "Dark";
  drawMap();
}

byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  themeChanged();
});
darkBySystem.addEventListener("change", themeChanged);

for (const place of document.querySelectorAll("main span[data-image]")) {
  place.replaceWith(picture(Number(place.dataset.image)));
}
drawCards();
drawLegend();
themeChanged();
if (data.gaze.length) drawGaze();
