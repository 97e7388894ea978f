// Light and dark theme, pictures in the tables, and the first drawing of all sections.
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

for (const element of document.querySelectorAll("main span[data-image]")) {
  element.replaceWith(picture(Number(element.dataset.image)));
}
drawCards();
drawLegend();
themeChanged();
if (data.attention.length) drawAttention();
