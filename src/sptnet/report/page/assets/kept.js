// Edits are kept in the browser, under an id of the run, so that they survive a reload. Pages opened from disk share one
// store in some browsers, so the key must not be that of the file.
const KEY = `sptnet edits of run ${data.run.id}`;
let isKept = true; // false if the browser keeps nothing
let savedText = ""; // the edits as they were saved last

const isSaved = () => edits.length > 0 && JSON.stringify(edits) === savedText;

function keep() {
  try {
    if (edits.length) {
      localStorage.setItem(KEY, JSON.stringify({ state: data.run.state, saved: isSaved(), edits }));
    } else localStorage.removeItem(KEY);
    isKept = true;
  } catch {
    isKept = false; // forbidden or full: the page says so, and warns before it is left
  }
}

function readKept() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "null");
    return Array.isArray(kept?.edits) && kept.edits.length ? kept : null;
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

function restore() {
  const kept = readKept();
  if (!kept) return;
  const count = many(kept.edits.length, "edit");
  if (kept.state === data.run.state) {
    const lost = bringBack(kept);
    const rest = lost ? ` ${many(lost, "edit")} did not fit and ${lost === 1 ? "is" : "are"} gone.` : "";
    const until = kept.saved ? "You saved them, but this page does not know whether they were applied." : "They are kept in this browser until you save them.";
    notice(`${count} from your last visit ${kept.edits.length === 1 ? "is" : "are"} back. ${until}${rest}`, false);
  } else if (kept.saved) {
    localStorage.removeItem(KEY); // saved, and the page has been renewed since
  } else {
    notice(`You made ${count} on an earlier version of this page and did not save ${kept.edits.length === 1 ? "it" : "them"}.`, true);
  }
}

byId("kept-back").addEventListener("click", () => {
  const kept = readKept();
  const lost = kept ? bringBack(kept) : 0;
  byId("kept").hidden = true;
  say(lost ? `${many(lost, "edit")} did not fit and ${lost === 1 ? "is" : "are"} gone.` : "The edits are back.");
  byId("filter").focus();
});
byId("kept-discard").addEventListener("click", () => {
  if (edits.length) return askDiscard();
  try {
    localStorage.removeItem(KEY);
  } catch {
    // nothing is kept there
  }
  byId("kept").hidden = true;
});
watchers.push(keep, () => { if (edits.length === 0) byId("kept").hidden = true; });

// Another window with the same page: show its edits here, so that neither overwrites the other's.
window.addEventListener("storage", (event) => {
  if (event.key !== KEY) return;
  const kept = readKept();
  if (kept && kept.state !== data.run.state) return;
  bringBack(kept ?? { edits: [] });
});
window.addEventListener("beforeunload", (event) => {
  if (edits.length && !isKept && !isSaved()) event.preventDefault();
});
