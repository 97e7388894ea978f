// The map: points on a canvas, with a tooltip for mouse, touch and the arrow keys.
const HUES = 8;
const CIRCLE = "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0 -1 0Z";
const DIAMOND = "M0 -1.3L1.3 0L0 1.3L-1.3 0Z";
const PLUS = "M-1.2 -0.42H-0.42V-1.2H0.42V-0.42H1.2V0.42H0.42V1.2H-0.42V0.42H-1.2Z";
const TRIANGLE = "M0 -1.25L1.15 0.85H-1.15Z";
const SQUARE = "M-0.9 -0.9H0.9V0.9H-0.9Z";
const DOWN = "M0 1.25L1.15 -0.85H-1.15Z";
// Shapes as well as colours, for readers who cannot distinguish all colours; new and known categories differ.
const SHAPES = { known: [CIRCLE, SQUARE, PLUS], new: [TRIANGLE, DIAMOND, DOWN] };
const plot = byId("plot");
const points = data.map.image.map((image, i) => ({ image, x: data.map.x[i], y: data.map.y[i], left: 0, top: 0 }));
let lit = null;
let chosen = -1;
let pinned = false; // the tip of a touched point stays, with a button

const shapeOf = (category) => SHAPES[category.isNew ? "new" : "known"][Math.floor(category.key / HUES) % 3];
const visible = (point) => !isDropped(point.image);

function colours() {
  const probe = make("span", { hidden: true });
  document.body.append(probe);
  const values = [];
  for (const name of [...Array(HUES).keys()].map((i) => `--c${i}`).concat("--ink", "--panel")) {
    probe.style.color = `var(${name})`;
    values.push(getComputedStyle(probe).color);
  }
  probe.remove();
  return values;
}

function drawMap() {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [plot.clientWidth, plot.clientHeight];
  plot.width = width * ratio;
  plot.height = height * ratio;
  const context = plot.getContext("2d");
  const palette = colours();
  const room = 26;
  const [across, down] = [(width - 2 * room) / 1000, (height - 2 * room) / 1000];
  const scale = Math.min(across, down);
  const [stretchX, stretchY] = [Math.min(1.6, across / scale), Math.min(1.6, down / scale)];
  const radius = (points.length > 2500 ? 2.6 : points.length > 800 ? 3.4 : 4.6) * Math.sqrt(Math.sqrt(mapView.zoom));
  const paths = new Map(state.categories.map((category) => [category.key, new Path2D(shapeOf(category))]));
  const order = [...points.keys()].sort((a, b) => isLit(points[a]) - isLit(points[b]));
  for (const i of order) {
    const point = points[i];
    [point.left, point.top] = onScreen(
      width / 2 + (point.x - 500) * scale * stretchX, height / 2 + (point.y - 500) * scale * stretchY);
    if (!visible(point)) continue;
    const key = state.where[point.image];
    context.setTransform(ratio * radius, 0, 0, ratio * radius, ratio * point.left, ratio * point.top);
    context.globalAlpha = isLit(point) ? 0.85 : 0.1;
    context.fillStyle = palette[key % HUES];
    context.fill(paths.get(key));
  }
  context.globalAlpha = 1;
  if (chosen >= 0) {
    const point = points[chosen];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.beginPath();
    context.arc(point.left, point.top, radius + 5, 0, 7);
    context.lineWidth = 2.5;
    context.strokeStyle = palette[HUES];
    context.stroke();
  }
}

const isLit = (point) => lit === null || state.where[point.image] === lit;

function choose(index, { aloud = false, pin = false } = {}) {
  if (index === chosen && pin === pinned) return;
  [chosen, pinned] = [index, pin && index >= 0];
  drawMap();
  showTip();
  if (!aloud || index < 0) return;
  const { image } = points[index];
  byId("tip-words").textContent = `${categoryOf(image).shown}: ${imageName(image)}, ${certaintyWords(image)}`;
}

const certaintyWords = (image) => `certainty ${percent(certaintyOf(image))}`;

// The tip beside the chosen point; hidden without one, or while the point lies outside of what is shown.
function showTip() {
  const tip = byId("tip");
  const { image, left, top } = points[chosen] ?? {};
  const isInside = left >= 0 && top >= 0 && left <= plot.clientWidth && top <= plot.clientHeight;
  tip.hidden = chosen < 0 || !isInside;
  tip.classList.toggle("pinned", pinned);
  if (tip.hidden) return;
  const small = [imageName(image), certaintyWords(image)].map((text) => make("span", { text }));
  const open = pinned ? [button("Open its category", () => openMembers(state.where[image]))] : [];
  tip.replaceChildren(picture(image), make("b", { text: categoryOf(image).shown }), ...small, ...open);
  const [width, height] = [tip.offsetWidth, Math.max(tip.offsetHeight, 215)];
  tip.style.left = `${left + 16 + width > plot.clientWidth ? Math.max(4, left - 16 - width) : left + 16}px`;
  tip.style.top = `${Math.min(Math.max(4, top - height / 2), Math.max(4, plot.clientHeight - height - 4))}px`;
}

// Move the map if the point lies outside of what is shown.
function reveal({ left, top }) {
  const [width, height, room] = [plot.clientWidth, plot.clientHeight, 30];
  if (left > room && top > room && left < width - room && top < height - room) return;
  shiftMap(width / 2 - left, height / 2 - top);
}

function nearest(left, top, fits, most = Infinity) {
  let [best, least] = [-1, most];
  points.forEach((point, i) => {
    const distance = Math.hypot(point.left - left, point.top - top);
    if (distance < least && visible(point) && isLit(point) && fits(point)) [best, least] = [i, distance];
  });
  return best;
}

const pointAt = (event, most) => nearest(event.offsetX, event.offsetY, () => true, most);

plot.addEventListener("wheel", onWheel, { passive: false });
plot.addEventListener("pointerdown", onFingerDown);
plot.addEventListener("pointermove", (event) => {
  if (onFingerMove(event) || event.pointerType === "touch" || pinned) return;
  choose(pointAt(event, 16));
});
for (const kind of ["pointerup", "pointercancel"]) plot.addEventListener(kind, onFingerUp);
// A finger leaves the map whenever it is lifted; the tip of what it touched stays.
plot.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch" && !pinned) choose(-1); });
plot.addEventListener("blur", () => { if (!pinned) choose(-1); });
plot.addEventListener("click", (event) => {
  if (mapView.isDragged) return;
  const index = pointAt(event, mapView.isTouched ? 24 : 16);
  if (mapView.isTouched) choose(index, { aloud: true, pin: true });
  else if (index >= 0) openMembers(state.where[points[index].image]);
  else choose(-1);
});
plot.addEventListener("keydown", (event) => {
  if (onMapKey(event)) return;
  if (event.key in WAYS) {
    event.preventDefault();
    const [x, y] = WAYS[event.key];
    const { left, top } = points[chosen] ?? { left: plot.clientWidth / 2, top: plot.clientHeight / 2 };
    const ahead = (point) => {
      const along = (point.left - left) * x + (point.top - top) * y;
      return along > 0.5 && along >= Math.abs((point.left - left) * y + (point.top - top) * x);
    };
    const next = nearest(left, top, chosen < 0 ? () => true : ahead);
    if (next < 0) return;
    choose(next, { aloud: true });
    reveal(points[next]);
  } else if (event.key === "Enter" && chosen >= 0) {
    event.preventDefault(); // else the key presses the button that gets the focus
    openMembers(state.where[points[chosen].image]);
  } else if (event.key === "Escape") choose(-1);
});

function sign(category) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "-1.4 -1.4 2.8 2.8");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", shapeOf(category));
  path.style.fill = `var(--c${category.key % HUES})`;
  svg.append(path);
  return svg;
}

function drawLegend() {
  if (lit !== null && !state.byKey.has(lit)) lit = null;
  byId("legend").replaceChildren(...state.categories.filter((category) => category.size).map((category) => {
    const pressed = String(lit === category.key);
    const entry = button("", () => highlight(category.key), { "aria-pressed": pressed, "data-key": category.key });
    const size = make("small", { text: numbers.format(category.size) });
    entry.append(sign(category), make("span", { text: category.shown, title: category.shown }), size);
    return make("li", {}, entry);
  }));
}

function highlight(key) {
  lit = lit === key ? null : key;
  for (const entry of document.querySelectorAll("#legend button")) {
    entry.setAttribute("aria-pressed", String(Number(entry.dataset.key) === lit));
  }
  drawMap();
}

watchers.push(() => { [chosen, pinned] = [-1, false]; showTip(); }, drawLegend, drawMap);
new ResizeObserver(() => placeMap(mapView.zoom, mapView.left, mapView.top)).observe(plot);
