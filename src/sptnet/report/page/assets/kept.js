// Edits are kept in the browser, under an id of the run, so that they survive a reload. Pages opened from disk share one
// store in some browsers, so the key must not be that of the file.
const KEY = `sptnet edits of run ${data.run.id}`;
let isKept = true; // false if the browser keeps nothing
let savedText = ""; // the edits as they were saved last
let earlier = []; // edits made on an earlier version of the page, neither brought back nor discarded

const isSaved = () => edits.length > 0 && JSON.stringify(edits) === savedText;

function keep() {
  try {
    if (edits.length || earlier.length) {
      localStorage.setItem(KEY, JSON.stringify({ state: data.run.state, saved: isSaved(), edits, earlier }));
    } else localStorage.removeItem(KEY);
    isKept = true;
  } catch {
    isKept = false; // forbidden or full: the page says so, and warns before it is left
  }
}

function readKept() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "null");
    return Array.isArray(kept?.edits) ? { ...kept, earlier: kept.earlier ?? [] } : null;
  } catch {
    return null; // forbidden, or not written by this page
  }
}

// Returns how many of the edits do not fit the run as it is now; those are left out.
function bringBack(kept) {
  edits.splice(0, edits.length, ...kept.edits);
  const fitting = () => replay().steps.findIndex((words) => words === null);
  let lost = 0;
  for (let at = fitting(); at >= 0; at = fitting()) {
    edits.splice(at, 1);
    lost += 1;
  }
  if (kept.saved && !lost) savedText = JSON.stringify(edits);
  changed();
  return lost;
}

function notice(words, canBringBack) {
  byId("kept-words").textContent = words;
  byId("kept-back").hidden = !canBringBack;
  byId("kept").hidden = false;
}

const isOrAre = (number) => (number === 1 ? "is" : "are");
const gone = (lost) => (lost ? ` ${many(lost, "edit")} did not fit and ${isOrAre(lost)} gone.` : "");

function restore() {
  const kept = readKept();
  if (!kept) return;
  const isOfThisPage = kept.state === data.run.state;
  earlier = kept.earlier;
  if (!isOfThisPage && !kept.saved) earlier = [...earlier, ...kept.edits]; // else the page was renewed with them
  const words = [];
  if (isOfThisPage && kept.edits.length) {
    const lost = bringBack(kept);
    const count = kept.edits.length;
    const them = count === 1 ? "it" : "them";
    const until = kept.saved
      ? `You saved ${them}, but this page does not know whether ${count === 1 ? "it was" : "they were"} applied.`
      : `${count === 1 ? "It is" : "They are"} kept in this browser until you save ${them}.`;
    words.push(`${many(count, "edit")} from your last visit ${isOrAre(count)} back. ${until}${gone(lost)}`);
  }
  if (earlier.length) {
    words.push(`You made ${many(earlier.length, "edit")} on an earlier version of this page and did not save ${earlier.length === 1 ? "it" : "them"}.`);
  }
  keep();
  if (words.length) notice(words.join(" "), earlier.length > 0);
}

byId("kept-back").addEventListener("click", () => {
  const both = [...earlier, ...edits];
  earlier = [];
  const lost = bringBack({ edits: both });
  byId("kept").hidden = true;
  say(`${lost < both.length ? "The edits are back." : ""}${gone(lost)}`.trim());
  byId("filter").focus();
});
byId("kept-discard").addEventListener("click", () => {
  if (!earlier.length && edits.length) return askDiscard();
  earlier = [];
  keep();
  byId("kept").hidden = true;
});
watchers.push(keep, () => { if (edits.length + earlier.length === 0) byId("kept").hidden = true; });

// Another window with the same page: show its edits here, so that neither overwrites the other's.
window.addEventListener("storage", (event) => {
  if (event.key !== KEY) return;
  const kept = readKept();
  if (kept && kept.state !== data.run.state) return;
  earlier = kept?.earlier ?? [];
  if (!earlier.length) byId("kept").hidden = true;
  bringBack(kept ?? { edits: [] });
});
window.addEventListener("beforeunload", (event) => {
  if (edits.length && !isKept && !isSaved()) event.preventDefault();
});
