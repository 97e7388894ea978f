// A list of images that can be sorted, filtered, selected and edited together, by mouse, touch and keyboard.
// Only the controls of one image are in the tab order; arrow keys go to other images.
const CHUNK = 120;
const SORTS = {
  sure: ["most certain first", (a, b) => certaintyOf(b) - certaintyOf(a)],
  unsure: ["least certain first", (a, b) => certaintyOf(a) - certaintyOf(b)],
  name: ["by name", (a, b) => collator.compare(imageName(a), imageName(b))],
  newest: ["newest first", (a, b) => (timeOf(b) ?? -Infinity) - (timeOf(a) ?? -Infinity)],
  oldest: ["oldest first", (a, b) => (timeOf(a) ?? Infinity) - (timeOf(b) ?? Infinity)],
};
const SHOWS = {
  all: ["all", () => true],
  doubtful: ["doubtful", isDoubtful],
  open: ["not confirmed", (image) => !isConfirmed(image) && !isLabel(image)],
  confirmed: ["confirmed", isConfirmed],
  labels: ["your labels", (image) => isLabel(image)],
};
const collator = new Intl.Collator("en", { numeric: true });
const galleries = [];

class Gallery {
  // `source` returns the images; `words` returns nodes below the name of an image; with `sorts` and `shows` there are
  // lists to choose from; `rows` is the number of rows before a button that shows all.
  constructor(root, { source, words = null, value = null, sort = "sure", sorts = false, shows = false, rows = null }) {
    Object.assign(this, { root, source, words, value, sort, show: "all", rows });
    this.images = [];
    this.tiles = new Map();
    this.selected = new Set();
    [this.active, this.anchor, this.isDrawn] = [0, 0, false];
    this.list = make("ul", { class: "tiles" });
    this.count = make("p", { class: "note count", role: "status" });
    this.more = button("", () => this.showAll(), { hidden: true });
    const bar = this.bar(sorts, shows);
    root.append(bar, this.list, make("p", { class: "more" }, this.more));
    // The bar stays in sight, so an image that gets the focus must come to rest below it.
    new ResizeObserver(() => root.style.setProperty("--tools", `${bar.offsetHeight}px`)).observe(bar);
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("keyup", (event) => {
      if (event.key === " " && event.target.classList.contains("enlarge")) event.preventDefault(); // else it clicks
    });
    this.list.addEventListener("focusin", (event) => this.activate(event.target.closest(".tile")));
    const more = (seen) => { if (seen.some((one) => one.isIntersecting)) this.fill(this.tiles.size + CHUNK); };
    this.watcher = new IntersectionObserver(more, { rootMargin: "600px" });
    galleries.push(this);
  }

  bar(sorts, shows) {
    const choice = (word, entries, chosen, onchange) => {
      const options = Object.entries(entries).map(([value, [text]]) => make("option", { value, text }));
      const select = make("select", { onchange: () => onchange(select.value) }, ...options);
      select.value = chosen;
      return make("label", { class: "field" }, make("span", { text: word }), select);
    };
    const timed = data.images.time.length > 0;
    const usable = Object.fromEntries(Object.entries(SORTS).filter(([key]) => timed || !["newest", "oldest"].includes(key)));
    const parts = [];
    if (sorts) parts.push(choice("Sort", usable, this.sort, (value) => { this.sort = value; this.draw(); }));
    if (shows) parts.push(choice("Show", SHOWS, this.show, (value) => { this.show = value; this.draw(); }));
    this.every = button("Select all", () => this.toggleAll(), { class: "every" });
    const act = (text, kind, work, label) => button(text, work, { class: `act ${kind}`, "aria-label": label, disabled: true });
    this.acts = [
      act("Confirm", "confirm", () => this.confirm(), "Confirm the selected images"),
      act("Move to…", "move", () => this.move(false), "Move to… another category: the selected images"),
      act("New category…", "split", () => this.move(true), "New category… for the selected images"),
      act("Wrong", "drop", () => this.drop(), "Mark the selected images as wrong"),
    ];
    const group = make("div", { class: "acts", role: "group", "aria-label": "Selected images" }, this.every, this.count, ...this.acts);
    return make("div", { class: "tools" }, ...parts, group);
  }

  wanted() {
    return this.source().filter(SHOWS[this.show][1]);
  }

  // Draw all anew. The selection is kept as far as its images are still here.
  draw() {
    this.isDrawn = true;
    const focused = this.list.contains(document.activeElement);
    const images = this.wanted();
    this.base = new Set(this.source());
    this.images = this.sort ? images.sort(SORTS[this.sort][1]) : images;
    this.selected = new Set(this.images.filter((image) => this.selected.has(image)));
    this.active = Math.min(this.active, Math.max(0, this.images.length - 1));
    this.anchor = Math.min(this.anchor, this.active);
    this.tiles.clear();
    this.list.replaceChildren();
    this.fill(this.rows === null ? Math.max(CHUNK, this.active + 1) : this.rows * this.columns());
    this.drawSelection();
    if (focused) this.focus();
  }

  // After an edit the order stays, so that nothing jumps; only images that came or went are a reason to draw anew.
  refresh() {
    if (!this.isDrawn) return;
    const base = this.source();
    if (base.length !== this.base.size || base.some((image) => !this.base.has(image))) return this.draw();
    this.tiles.forEach((tile, image) => this.mark(tile, image));
    this.drawSelection();
  }

  fill(until) {
    const fresh = this.images.slice(this.tiles.size, until);
    this.list.append(...fresh.map((image) => this.tile(image)));
    this.watcher.disconnect();
    const last = this.list.lastElementChild;
    this.more.hidden = this.rows === null || this.tiles.size === this.images.length;
    this.more.textContent = `Show all ${many(this.images.length, "image")}`;
    if (this.rows === null && last && this.tiles.size < this.images.length) this.watcher.observe(last);
  }

  showAll() {
    const next = this.tiles.size;
    this.rows = null;
    this.fill(this.images.length);
    this.go(next);
  }

  tile(image) {
    const name = imageName(image);
    const open = button("", (event) => this.onClick(event, image), { class: "enlarge", title: name });
    open.append(picture(image, ""));
    const box = make("input", { type: "checkbox", "aria-label": `Select ${name}` });
    box.addEventListener("click", (event) => this.pick(this.images.indexOf(image), event.shiftKey));
    const frame = make("div", { class: "frame" }, open, make("label", { class: "pick" }, box), make("div", { class: "badges" }));
    const right = button("Confirm", () => toggleConfirmImage(image), { class: "right", "aria-label": `${name} is right here: confirm` });
    const wrong = button("Wrong", () => toggleWrong(image), { class: "wrong", "aria-label": `${name} is wrong here` });
    const foot = make("div", { class: "foot" }, make("span", { class: "certainty" }), right, wrong);
    const item = make("li", { class: "tile", "data-image": image }, frame, make("p", { class: "name", title: name }, ...nameParts(name)), foot);
    if (this.words) foot.before(make("p", { class: "words" }, ...this.words(image)));
    this.tiles.set(image, item);
    this.mark(item, image);
    this.order(item, this.images[this.active] === image);
    return item;
  }

  mark(item, image) {
    const [dropped, confirmed] = [isDropped(image), isConfirmed(image)];
    const right = item.querySelector(".right");
    const tags = badges(image);
    const value = percent(this.value ? this.value(image) : certaintyOf(image));
    const words = [imageName(image), `certainty ${value}`, ...tags.map((tag) => tag.textContent)];
    if (this.selected.has(image)) words.push("selected");
    item.classList.toggle("marked", dropped);
    item.classList.toggle("selected", this.selected.has(image));
    item.querySelector(".pick input").checked = this.selected.has(image);
    item.querySelector(".enlarge").setAttribute("aria-label", `${words.join(", ")}: enlarge`);
    item.querySelector(".badges").replaceChildren(...tags);
    item.querySelector(".certainty").textContent = value;
    item.querySelector(".wrong").setAttribute("aria-pressed", String(dropped));
    right.setAttribute("aria-pressed", String(confirmed));
    right.disabled = dropped || (confirmed && !canUnconfirm(image));
  }

  order(item, isActive) {
    for (const control of item.querySelectorAll("button, input")) control.tabIndex = isActive ? 0 : -1;
  }

  activate(item) {
    if (!item) return;
    const before = this.tiles.get(this.images[this.active]);
    if (before && before !== item) this.order(before, false);
    this.active = this.images.indexOf(Number(item.dataset.image));
    this.order(item, true);
  }

  // Focus the active image; without images, the first control of the bar.
  focus() {
    const item = this.tiles.get(this.images[this.active]);
    (item?.querySelector(".enlarge") ?? this.root.querySelector("select, .every")).focus();
  }

  focusImage(image) {
    const at = this.images.indexOf(image);
    this.go(at < 0 ? this.active : at);
  }

  go(to) {
    const at = Math.min(this.images.length - 1, Math.max(0, to));
    if (at < 0) return;
    if (at >= this.tiles.size) this.fill(at + 1);
    this.activate(this.tiles.get(this.images[at]));
    this.focus();
  }

  onClick(event, image) {
    const at = this.images.indexOf(image);
    if (event.shiftKey || event.ctrlKey || event.metaKey || (this.selected.size && event.detail > 0)) this.pick(at, event.shiftKey);
    else this.enlarge(at);
  }

  enlarge(at) {
    openLight(this.images, at, (image) => this.focusImage(image));
  }

  // Toggle one image, or select all from the last chosen one to this one.
  pick(at, isRange) {
    if (isRange) this.range(at);
    else {
      const image = this.images[at];
      if (!this.selected.delete(image)) this.selected.add(image);
      this.anchor = at;
    }
    this.drawSelection();
  }

  range(at) {
    const [from, to] = [Math.min(this.anchor, at), Math.max(this.anchor, at)];
    for (const image of this.images.slice(from, to + 1)) this.selected.add(image);
  }

  toggleAll() {
    const all = this.selected.size === this.images.length;
    this.selected = new Set(all ? [] : this.images);
    this.drawSelection();
  }

  clear() {
    const isLost = this.acts.includes(document.activeElement); // these buttons are disabled without a selection
    this.selected.clear();
    this.drawSelection();
    if (isLost) this.focus();
  }

  drawSelection() {
    const count = this.selected.size;
    this.count.textContent = count ? `${numbers.format(count)} selected` : many(this.images.length, "image");
    this.every.textContent = count && count === this.images.length ? "Select none" : "Select all";
    this.every.disabled = this.images.length === 0;
    for (const act of this.acts) act.disabled = count === 0;
    this.tiles.forEach((tile, image) => {
      const isSelected = this.selected.has(image);
      const box = tile.querySelector(".pick input");
      if (tile.classList.contains("selected") !== isSelected || box.checked !== isSelected) this.mark(tile, image);
    });
  }

  // The selected images in their order, or the one that has the focus.
  chosen() {
    const images = this.images.filter((image) => this.selected.has(image));
    return images.length ? images : this.images.slice(this.active, this.active + 1);
  }

  confirm() {
    confirmImages(this.chosen());
    this.clear();
  }

  drop() {
    dropImages(this.chosen());
    this.clear();
  }

  move(isNew) {
    openMove(this.chosen(), isNew, () => { this.focus(); return null; }, () => this.clear());
  }

  columns() {
    return getComputedStyle(this.list).gridTemplateColumns.split(" ").length;
  }

  onKey(event) {
    const onPicture = event.target.classList.contains("enlarge");
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns(), ArrowDown: this.columns() };
    const ends = { Home: 0, End: this.images.length - 1 };
    const one = this.images[this.active];
    const alone = this.selected.size === 0;
    const acts = {
      c: () => (alone ? toggleConfirmImage(one) : this.confirm()),
      w: () => (alone ? toggleWrong(one) : this.drop()),
      m: () => this.move(false),
      n: () => this.move(true),
    };
    if (event.key === "a" && (event.ctrlKey || event.metaKey)) {
      this.selected = new Set(this.images);
      this.drawSelection();
    } else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key in steps || event.key in ends) {
      const before = this.active;
      this.go(event.key in ends ? ends[event.key] : this.active + steps[event.key]);
      if (event.shiftKey) {
        if (alone) this.anchor = before;
        this.range(this.active);
        this.drawSelection();
      }
    } else if (event.key === " " && onPicture) this.pick(this.active, event.shiftKey);
    else if (event.key === "Escape" && !alone) this.clear();
    else if (event.key in acts) acts[event.key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

watchers.push(() => galleries.forEach((gallery) => gallery.refresh()));
