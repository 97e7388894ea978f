// Helpers. Texts from the run become text nodes or attributes, never markup.
const data = JSON.parse(document.getElementById("data").textContent);
const pictures = JSON.parse(document.getElementById("pictures").textContent);
const SVG = "http://www.w3.org/2000/svg";
const numbers = new Intl.NumberFormat("en-GB");

const byId = (id) => document.getElementById(id);

// make("button", {class: "quiet", text: "Close", onclick: close}, child, ...)
function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function button(text, onclick, options = {}) {
  return make("button", { type: "button", text, onclick, ...options });
}

function many(count, noun, plural = `${noun}s`) {
  return `${numbers.format(count)} ${count === 1 ? noun : plural}`;
}

// Certainty in per cent; only labels and confirmed images have 100 %.
const percent = (value) => (value === null ? "–" : `${value < 1 ? Math.min(99, Math.round(100 * value)) : 100} %`);
const imageName = (image) => data.images.shown[image] ?? data.images.id[image];

function picture(image, alt = imageName(image)) {
  if (!pictures[image]) {
    const label = `${alt}, no picture`;
    return make("span", { class: "picture missing", role: "img", "aria-label": label, text: "no picture" });
  }
  const img = make("img", { class: "picture", alt, draggable: "false", decoding: "async" });
  img.addEventListener("load", () => img.classList.toggle("tiny", img.naturalWidth <= 32));
  img.src = pictures[image];
  return img;
}

// The folder apart from the file, so that a long one does not hide the name of the file.
function nameParts(name) {
  const at = name.lastIndexOf("/") + 1;
  return [...(at ? [make("span", { class: "folder", text: name.slice(0, at) })] : []), make("span", { text: name.slice(at) })];
}

function say(text) {
  byId("live").textContent = text;
}

const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// The first of some names, and the number of the others.
function some(names, most = 3) {
  return names.length > most ? `${names.slice(0, most).join(", ")}, …` : names.join(", ");
}

// On closing, the browser returns the focus to the element that opened the dialog; if that cannot take it, `fallback` does.
function openDialog(dialog, fallback = () => null) {
  dialog.addEventListener("close", () => {
    const focused = document.activeElement;
    if (!focused || focused === document.body || dialog.contains(focused)) fallback()?.focus();
  }, { once: true });
  dialog.showModal();
}

for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
}
