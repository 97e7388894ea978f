// Attention maps. Weights are stored as deciles, so the share in red is chosen by a comparison.
const attention = { sample: 0, row: 0, tenths: new Map() };

// Two values per byte, compressed: see attention_data.py.
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const pairs = new Uint8Array(await new Response(stream).arrayBuffer());
  const values = new Uint8Array(2 * pairs.length);
  pairs.forEach((pair, i) => { values[2 * i] = pair >> 4; values[2 * i + 1] = pair & 15; });
  return values;
}

async function loaded(sample) {
  const unpacked = () => Promise.all(data.attention[sample].views.map((view) => unpack(view.tenths)));
  if (!attention.tenths.has(sample)) attention.tenths.set(sample, unpacked());
  return attention.tenths.get(sample);
}

const shareInRed = () => Number(document.querySelector("input[name=share]:checked").value);

async function drawAttention() {
  const entry = data.attention[attention.sample];
  const { sample, row } = attention;
  const image = byId("look-picture");
  if (image.src !== entry.picture) image.src = entry.picture;
  image.alt = imageName(entry.image);
  const [views] = await Promise.all([loaded(sample), image.decode()]);
  if (sample !== attention.sample || row !== attention.row) return; // the choice has changed meanwhile
  const [y, x] = [Math.ceil(row / entry.grid), ((row - 1) % entry.grid) + 1];
  const from = row === 0 ? "the class token" : `the patch in row ${y}, column ${x}`;
  byId("look-words").textContent = `Looking from ${from}.`;
  byId("class-token").disabled = row === 0;
  for (const one of byId("samples").children) {
    one.setAttribute("aria-pressed", String(Number(one.dataset.sample) === sample));
  }
  byId("heads").replaceChildren(...views.map((tenths, i) => headView(entry, entry.views[i].name, tenths, row, image)));
  drawLook(entry);
}

function headView(entry, name, tenths, row, image) {
  const list = make("div", { class: "heads" });
  for (let head = 0; head < entry.heads; head += 1) {
    const label = `Head ${head + 1}${name && `, ${name}`}: ${shareInRed()}0 % of the patches in red`;
    const canvas = make("canvas", { role: "img", "aria-label": label });
    canvas.width = canvas.height = 224;
    const size = entry.grid ** 2;
    const start = (head * entry.rows + row) * size;
    paint(canvas, image, entry.grid, tenths.subarray(start, start + size));
    list.append(make("figure", {}, canvas, make("figcaption", { text: `head ${head + 1}` })));
  }
  return make("div", { class: "view" }, ...(name ? [make("h3", { text: name })] : []), list);
}

function paint(canvas, image, grid, tenths) {
  const context = canvas.getContext("2d");
  const step = canvas.width / grid;
  context.imageSmoothingEnabled = image.naturalWidth > 64;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  const limit = shareInRed();
  context.fillStyle = "rgb(225 20 30 / 0.62)";
  tenths.forEach((tenth, i) => {
    if (tenth < limit) context.fillRect((i % grid) * step, Math.floor(i / grid) * step, step, step);
  });
}

function drawLook(entry) {
  const canvas = byId("look");
  canvas.width = canvas.height = 448;
  const step = canvas.width / entry.grid;
  const context = canvas.getContext("2d");
  context.strokeStyle = "rgb(255 255 255 / 0.28)";
  for (let i = 1; i < entry.grid; i += 1) {
    context.strokeRect(i * step, -2, 0.01, 460);
    context.strokeRect(-2, i * step, 460, 0.01);
  }
  if (attention.row === 0) return;
  const [x, y] = [(attention.row - 1) % entry.grid, Math.floor((attention.row - 1) / entry.grid)];
  for (const [colour, width] of [["#000", 7], ["#3dff8f", 4]]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(x * step, y * step, step, step);
  }
}

function lookFrom(row) {
  if (row >= data.attention[attention.sample].rows) return;
  attention.row = row;
  drawAttention();
}

if (data.attention.length) {
  const grid = () => data.attention[attention.sample].grid;
  byId("samples").append(...data.attention.map((entry, sample) => {
    const one = button("", () => { attention.sample = sample; lookFrom(0); }, {
      "aria-label": `Look at ${imageName(entry.image)}`,
      "data-sample": sample,
      "aria-pressed": "false",
    });
    one.append(picture(entry.image, ""));
    return one;
  }));
  byId("attention-help").hidden = data.attention[0].rows === 1; // large images have the class token's row only
  byId("class-token").addEventListener("click", () => lookFrom(0));
  byId("shares").addEventListener("change", drawAttention);
  byId("look").addEventListener("click", (event) => {
    const cell = (offset, size) => Math.min(grid() - 1, Math.max(0, Math.floor(offset / size * grid())));
    const { offsetX, offsetY, target } = event;
    lookFrom(1 + cell(offsetY, target.clientHeight) * grid() + cell(offsetX, target.clientWidth));
  });
  byId("look").addEventListener("keydown", (event) => {
    if (event.key === "Escape") lookFrom(0);
    if (!(event.key in WAYS)) return;
    event.preventDefault();
    const inside = (value) => Math.min(grid() - 1, Math.max(0, value));
    const middle = Math.floor(grid() / 2);
    const [stepX, stepY] = WAYS[event.key];
    const [x, y] = [((attention.row - 1) % grid()) + stepX, Math.floor((attention.row - 1) / grid()) + stepY];
    lookFrom(attention.row === 0 ? 1 + middle * grid() + middle : 1 + inside(y) * grid() + inside(x));
  });
}
