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

const share = (value) => (value === null ? "–" : value.toFixed(2));
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

// Fill a list in chunks while scrolling, so that thousands of entries do not block the page.
function fillSlowly(list, entries, build, size, root) {
  let next = 0;
  const end = make("li", { class: "end-of-list", "aria-hidden": "true" });
  const seen = (changes) => { if (changes.some((one) => one.isIntersecting)) more(); };
  const watcher = new IntersectionObserver(seen, { root, rootMargin: "600px" });
  function more() {
    end.before(...entries.slice(next, next + size).map(build));
    next += size;
    if (next >= entries.length) {
      watcher.disconnect();
      end.remove();
    } else {
      watcher.unobserve(end);
      watcher.observe(end);
    }
  }
  list.replaceChildren(end);
  more();
}

function say(text) {
  byId("live").textContent = text;
}

// On closing, return the focus to the element that opened the dialog, or to `fallback` if that element is gone.
function openDialog(dialog, fallback = () => null) {
  const before = document.activeElement;
  const back = () => (before?.isConnected && before !== document.body ? before : fallback());
  dialog.addEventListener("close", () => back()?.focus(), { once: true });
  dialog.showModal();
}

for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
}
