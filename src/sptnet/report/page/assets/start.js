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

// Paper is white: a page in dark colours is printed in light ones.
let themeOnScreen;
addEventListener("beforeprint", () => {
  themeOnScreen = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  themeChanged();
});
addEventListener("afterprint", () => {
  if (themeOnScreen) document.documentElement.dataset.theme = themeOnScreen;
  else delete document.documentElement.dataset.theme;
  themeChanged();
});

// On a narrow screen the sections are a menu.
function openMenu(isOpen) {
  byId("sections").classList.toggle("open", isOpen);
  byId("menu").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) byId("sections").scrollIntoView({ block: "nearest" }); // the bar may be at the lower edge of the screen
}
byId("menu").addEventListener("click", () => openMenu(byId("menu").getAttribute("aria-expanded") !== "true"));
byId("sections").addEventListener("click", () => openMenu(false));
document.querySelector(".bar").addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || byId("menu").getAttribute("aria-expanded") !== "true") return;
  openMenu(false);
  byId("menu").focus();
});

byId("keys").addEventListener("click", () => openDialog(byId("help")));
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input:not([type=checkbox], [type=radio]), select, textarea")) return;
  if (event.key === "?" && !byId("help").open) openDialog(byId("help"));
  else if (event.key === "z" && (event.ctrlKey || event.metaKey) && edits.length) undo();
  else return;
  event.preventDefault();
});

for (const element of document.querySelectorAll("main span[data-image]")) {
  element.replaceWith(picture(Number(element.dataset.image)));
}
drawCards();
drawLegend();
drawCommands();
drawOlder();
placeMap(1, 0, 0);
themeChanged();
drawNext();
restore();
if (data.attention.length) drawAttention();
