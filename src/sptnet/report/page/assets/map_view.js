// Zoom and place of the map: wheel, drag, two fingers, buttons and keys.
const MOST_ZOOM = 16;
const mapView = { zoom: 1, left: 0, top: 0, fingers: new Map(), isDragged: false, isTouched: false };

// From the whole map to what is shown.
const onScreen = (left, top) => [left * mapView.zoom + mapView.left, top * mapView.zoom + mapView.top];

function placeMap(zoom, left, top) {
  const inside = (value, size) => Math.min(0, Math.max(size * (1 - mapView.zoom), value));
  mapView.zoom = Math.min(MOST_ZOOM, Math.max(1, zoom));
  mapView.left = inside(left, plot.clientWidth);
  mapView.top = inside(top, plot.clientHeight);
  // While the whole map is shown, one finger scrolls the page; after that it moves the map.
  plot.style.touchAction = mapView.zoom > 1 ? "none" : "pan-y";
  byId("zoom-in").disabled = mapView.zoom >= MOST_ZOOM;
  byId("zoom-out").disabled = byId("zoom-all").disabled = mapView.zoom <= 1;
  drawMap();
  showTip();
}

// Zoom such that the point under the pointer stays where it is.
function zoomMap(factor, x = plot.clientWidth / 2, y = plot.clientHeight / 2) {
  const zoom = Math.min(MOST_ZOOM, Math.max(1, mapView.zoom * factor));
  const scale = zoom / mapView.zoom;
  placeMap(zoom, x - (x - mapView.left) * scale, y - (y - mapView.top) * scale);
}

const wholeMap = () => placeMap(1, 0, 0);
const shiftMap = (x, y) => placeMap(mapView.zoom, mapView.left + x, mapView.top + y);

// The wheel alone scrolls the page, unless the map has the focus.
function onWheel(event) {
  const wanted = event.ctrlKey || event.metaKey || document.activeElement === plot;
  const canZoom = event.deltaY < 0 ? mapView.zoom < MOST_ZOOM : mapView.zoom > 1;
  if (!wanted || (!canZoom && !event.ctrlKey)) return;
  event.preventDefault();
  zoomMap(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.06 : 0.002)), event.offsetX, event.offsetY);
}

function onFingerDown(event) {
  mapView.isTouched = event.pointerType === "touch"; // not every browser tells it of a click
  mapView.fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
  if (mapView.fingers.size === 1) mapView.isDragged = false;
}

// Returns true if the map was moved or zoomed.
function onFingerMove(event) {
  const before = mapView.fingers.get(event.pointerId);
  if (!before) return false;
  const here = [event.offsetX, event.offsetY];
  const others = [...mapView.fingers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
  if (others.length === 0) {
    if (!mapView.isDragged && Math.hypot(here[0] - before[0], here[1] - before[1]) < 5) return false;
    if (mapView.zoom === 1) return false;
    if (!mapView.isDragged) plot.setPointerCapture(event.pointerId);
    mapView.isDragged = true;
    mapView.fingers.set(event.pointerId, here);
    shiftMap(here[0] - before[0], here[1] - before[1]);
    return true;
  }
  const other = others[0];
  const distance = ([x, y]) => Math.hypot(x - other[0], y - other[1]);
  const middle = ([x, y]) => [(x + other[0]) / 2, (y + other[1]) / 2];
  mapView.isDragged = true;
  mapView.fingers.set(event.pointerId, here);
  const [from, to] = [middle(before), middle(here)];
  mapView.left += to[0] - from[0];
  mapView.top += to[1] - from[1];
  zoomMap(distance(here) / Math.max(1, distance(before)), ...to);
  return true;
}

function onFingerUp(event) {
  mapView.fingers.delete(event.pointerId);
}

// Keys that zoom or move the map; returns false for others.
function onMapKey(event) {
  const zooms = { "+": 1.5, "=": 1.5, "-": 1 / 1.5 };
  if (event.key in zooms) zoomMap(zooms[event.key]);
  else if (event.key === "0") wholeMap();
  else if (event.shiftKey && event.key in WAYS) shiftMap(...WAYS[event.key].map((way) => -80 * way));
  else return false;
  event.preventDefault();
  return true;
}

byId("zoom-in").addEventListener("click", () => zoomMap(1.6));
byId("zoom-out").addEventListener("click", () => zoomMap(1 / 1.6));
byId("zoom-all").addEventListener("click", wholeMap);
