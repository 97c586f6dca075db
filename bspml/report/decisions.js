
// -- decisions about samples: those of the cards, the copies and the photos ----------------------

const WORDS = { wrong: "label wrong", right: "label right", unsure: "unsure" };
const bySample = new Map(); // index -> sample, of all that can be decided on
for (const id of [
  ...suspects.map((suspect) => suspect.sample),
  ...duplicates.flatMap((pair) => [pair.a, pair.b]),
  ...photos.map((photo) => photo.sample),
]) if (!bySample.has(indexAt(id))) bySample.set(indexAt(id), id);
const decisions = new Map(); // index -> {decision, label: id of the new label or -1}
const elsewhere = new Map(); // rows of a loaded file that are not on this page, kept for saving
const undoable = [];
let unsaved = false;

const storage = (() => {
  try {
    localStorage.setItem("bspml-try", "1");
    localStorage.removeItem("bspml-try");
    return localStorage;
  } catch { return null; }
})();
let keeping = 0, kept = storage !== null;

function keep() {
  clearTimeout(keeping);
  keeping = 0;
  try { storage?.setItem(data.key, toCsv()); } catch { kept = false; }
}

function decide(index, decision, label = -1, remember = true) {
  if (remember) undoable.push([index, decisions.get(index) || null]);
  if (decision === null) decisions.delete(index);
  else decisions.set(index, { decision, label });
  changed();
  for (const element of document.querySelectorAll(`[data-index="${index}"]`)) showDecision(element);
  tally();
}

function changed() {
  unsaved = true;
  if (!keeping) keeping = setTimeout(keep, 400);
}

const outcome = (index) => {
  const made = decisions.get(index);
  if (!made) return "not decided";
  return made.label < 0 ? WORDS[made.decision] : `${WORDS[made.decision]}, is ${shown[made.label]}`;
};

function mark(index, decision, label = -1) {
  const made = decisions.get(index);
  const same = made && made.decision === decision && made.label === label;
  decide(index, same ? null : decision, label);
  say(`#${index}: ${outcome(index)}`);
  return !same;
}

function undo() {
  if (!undoable.length) return;
  const [index, before] = undoable.pop();
  decide(index, before && before.decision, before ? before.label : -1, false);
  say(`undone; #${index}: ${outcome(index)}`);
  focusSample(index);
}

function tally() {
  const count = { wrong: 0, right: 0, unsure: 0 };
  for (const { decision } of decisions.values()) count[decision]++;
  $("progress").textContent = decisions.size
    ? `${decisions.size} decided: ${count.wrong} wrong, ${count.right} right, ${count.unsure} unsure` : "none decided";
  $("undo").disabled = !undoable.length;
}

// The buttons of a sample that is kept or left out; `take`: a label it may have, or -1.
function keepOrDrop(id, take = -1) {
  return h("div", { class: "decide", role: "group", "aria-label": `Decision on #${indexAt(id)}` },
    h("button", { type: "button", class: "right", "data-decision": "right", title: "the label is right" }, "Keep"),
    h("button", { type: "button", class: "wrong", "data-decision": "wrong", "data-bare": "", title: "leave the sample out" }, "Drop"),
    h("button", { type: "button", class: "other", "data-other": "", title: "the label is wrong; choose the right one" }, "Right label…"),
    take < 0 ? null : h("button", { type: "button", class: "take whole", "data-take": take, title: `the label is wrong; take ${shown[take]}` }, "Is ", isolated(shown[take])),
    h("p", { class: "outcome" }));
}

// Buttons of an element with data-index say what was decided.
function showDecision(element) {
  const index = Number(element.dataset.index), made = decisions.get(index);
  element.dataset.decision = made ? made.decision : "";
  for (const button of element.querySelectorAll("[data-decision]")) {
    const bare = !("bare" in button.dataset) || (made && made.label < 0);
    button.setAttribute("aria-pressed", String(Boolean(made && bare) && made.decision === button.dataset.decision));
  }
  let taken = false;
  for (const button of element.querySelectorAll("[data-take]")) {
    const pressed = Boolean(made) && made.label === Number(button.dataset.take);
    button.setAttribute("aria-pressed", String(pressed));
    taken ||= pressed;
  }
  element.querySelector(".outcome").textContent = made && made.label >= 0 && !taken ? `is ${shown[made.label]}` : "";
  if (element.matches(".card")) nameCard(element);
}

// What a button of an element with data-index does; the gallery's cards act themselves.
function onDecision(event) {
  const button = event.target.closest("button"), element = event.target.closest("[data-index]");
  if (!button || !element || element.matches(".card") || button.matches(".zoom")) return;
  const index = Number(element.dataset.index);
  if (button.dataset.decision) mark(index, button.dataset.decision);
  else if ("take" in button.dataset) mark(index, "wrong", Number(button.dataset.take));
  else if ("other" in button.dataset) chooseLabel(index, button);
}

// -- the decisions as CSV --------------------------------------------------------------------

const HEAD = ["index", "label", "decision", "new_label", "name", "picture"]; // the last two: where there are any
const pictured = new Map(); // index -> digest of a loaded file, of a sample that has none here
const protect = (text) => (data.integers ? text : csv.protect(text));

function toCsv() {
  const rows = [...decisions].map(([index, { decision, label }]) => {
    const id = bySample.get(index), name = nameAt(id), picture = pictureAt(id) || pictured.get(index) || "";
    return [index, protect(labels[labelAt(id)]), decision, label < 0 ? "" : protect(labels[label]), name && csv.protect(name), picture && csv.protect(picture)];
  });
  rows.push(...elsewhere.values());
  rows.sort((a, b) => Number(a[0]) - Number(b[0]));
  const width = rows.some((row) => row[5]) ? 6 : rows.some((row) => row[4]) ? 5 : 4;
  // The flags are part of the story only where a person can choose them.
  const flag = (index) => (canFlag ? [isFlagged(Number(index)) ? "yes" : "no"] : []);
  const cells = rows.map((row) => [...row.slice(0, width), ...flag(row[0])]);
  return [[...HEAD.slice(0, width), ...(canFlag ? ["flagged"] : [])], ...cells].map(csv.line).join("");
}

// Labels as the file wrote them to their numbers here; undefined for an unknown one.
const byLabelText = new Map(labels.map((label, id) => [label, id]));
const trimmed = new Set(labels.map((label) => label.trim()));
// As it stands; without spaces around it only where it is no class and that is one.
const classOf = (text) => byLabelText.get(text) ?? byLabelText.get(text.trim());
// With the table of classes, the page knows all labels and how many samples there are: the classes
// count those that take part, the map also those that earlier decisions dropped.
const total = data.map?.total ?? classes.reduce((sum, entry) => sum + entry.support, 0);

// As `bspml audit --apply` reads them: index and decision are needed, label and new_label not. What it
// refuses is not loaded either.
function rowsOf(text) {
  const [head = [], ...rows] = csv.parse(text.replace(/^\ufeff/, ""));
  const names = head.map((name) => name.trim().toLowerCase());
  const column = HEAD.map((name) => names.indexOf(name));
  if (column[0] < 0 || column[2] < 0) throw new Error(`expected the columns ${HEAD.join(", ")}; got ${head.slice(0, 8).join(", ") || "nothing"}`);
  const twice = HEAD.find((name) => names.indexOf(name) !== names.lastIndexOf(name));
  if (twice) throw new Error(`there are two columns ${twice}; keep one`);
  const torn = rows.find((cells) => cells.length !== head.length);
  if (torn) throw new Error(`a line of ${torn.length} cells, ${show(torn.join(",")).slice(0, 60)}, is among lines of ${head.length}; put a label with a comma in quotes`);
  return rows.map((cells) => {
    const [index, label, decision, newLabel, name, picture] = column.map((place) => cells[place] ?? "");
    return [index.trim(), label, decision.trim().toLowerCase(), newLabel, name, picture];
  });
}

const NUMBER = /^(0|[1-9]\d*)$/;
// A label that is right or unsure may be repeated as the new one.
const decides = ([index, label, decision, newLabel]) => NUMBER.test(index) && Object.hasOwn(WORDS, decision)
  && (decision === "wrong" || ["", csv.bare(label).trim()].includes(csv.bare(newLabel).trim()));
const fits = (said, own) => said === own || (!byLabelText.has(said) && said.trim() === own.trim());

// Why these must be decisions about other data, or "".
function contradiction(rows) {
  for (const [index, label, , , name, picture] of rows) {
    if (!NUMBER.test(index)) continue;
    const id = bySample.get(Number(index)), said = csv.bare(label);
    if (total && Number(index) >= total) return `there is no sample ${index} here`;
    const called = id === undefined ? "" : nameAt(id);
    if (name !== "" && called && csv.bare(name) !== called) return `sample ${index} is ${show(called)} here, ${show(csv.bare(name))} in the file`;
    if (picture !== "" && id !== undefined && pictureAt(id) && csv.bare(picture).trim() !== pictureAt(id)) return `sample ${index} is another picture here`;
    if (said === "") continue;
    if (id !== undefined && !fits(said, labels[labelAt(id)])) return `sample ${index} is labelled ${shown[labelAt(id)]} here, ${show(said)} in the file`;
    if (total && !byLabelText.has(said) && !trimmed.has(said.trim())) return `there is no class ${show(said)} here, which sample ${index} has in the file`;
  }
  return "";
}

// The sample about which two rows say different things, or undefined.
function decidedTwice(rows) {
  const verdicts = new Map();
  for (const row of rows) {
    const [index, , decision, newLabel] = row;
    if (!decides(row)) continue;
    const verdict = JSON.stringify([decision, decision === "wrong" ? csv.bare(newLabel) : ""]);
    if ((verdicts.get(Number(index)) ?? verdict) !== verdict) return index;
    verdicts.set(Number(index), verdict);
  }
  return undefined;
}

function fromCsv(text) {
  const rows = rowsOf(text), other = contradiction(rows), twice = decidedTwice(rows);
  if (other) throw new Error(`${other}; are these decisions about other data?`);
  if (twice !== undefined) throw new Error(`two lines decide differently on sample ${twice}; keep one of them`);
  undoable.length = 0; // a step back from before the file would take away what it decided
  const report = { loaded: 0, elsewhere: 0, refused: 0 };
  for (const row of rows) {
    const [index, label, decision, newLabel, name, picture] = row;
    if (!decides(row)) { report.refused++; continue; }
    const sample = bySample.get(Number(index));
    const id = newLabel === "" || decision !== "wrong" ? -1 : classOf(csv.bare(newLabel));
    if (sample === undefined) {
      elsewhere.set(Number(index), [index, label, decision, newLabel, name, picture]);
      report.elsewhere++;
    } else if (id === undefined || id === labelAt(sample)) report.refused++;
    else {
      if (picture) pictured.set(Number(index), csv.bare(picture).trim());
      decide(Number(index), decision, id, false);
      report.loaded++;
    }
  }
  if (report.elsewhere) changed();
  offerToForget();
  tally();
  return report;
}

function offerToForget() {
  $("forget").hidden = elsewhere.size === 0;
  $("forget").textContent = `Forget ${many(elsewhere.size, "decision")} about samples not on this page`;
}

function forget() {
  const count = elsewhere.size;
  elsewhere.clear();
  unsaved = true;
  keep();
  offerToForget();
  $("save").focus();
  say(`${many(count, "decision")} forgotten`);
}

function save() {
  const url = URL.createObjectURL(new Blob(csv.encode(toCsv()), { type: "text/csv" }));
  h("a", { href: url, download: "decisions.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
  unsaved = false;
  say(`${many(decisions.size + elsewhere.size, "decision")} saved to decisions.csv`);
}

async function load(file) {
  try {
    const report = fromCsv(csv.decode(new Uint8Array(await file.arrayBuffer())));
    const parts = [`${many(report.loaded, "decision")} loaded`];
    if (report.elsewhere) parts.push(`${report.elsewhere} about samples not on this page kept for saving`);
    if (report.refused) parts.push(`${report.refused} left out: no such class, or not a decision`);
    say(parts.join("; "));
  } catch (error) { say(`${file.name} was not loaded: ${error.message}.`); }
}

// -- choosing a class by its name --------------------------------------------------------------

function offer(list, text) {
  const options = [];
  for (let id = 0; id < labels.length && options.length < 50; id++) {
    if (lower[id].includes(text)) options.push(h("option", { value: nameOf[id] }));
  }
  list.replaceChildren(...options);
}

let choosing = null; // {index, back: where the focus goes}

function chooseLabel(index, back) {
  choosing = { index, back };
  $("choose-for").textContent = `#${index}, labelled ${shown[labelAt(bySample.get(index))]}`;
  $("choose-input").value = "";
  $("choose-error").textContent = "";
  offer($("choose-options"), "");
  $("choose").showModal();
  $("choose-input").focus();
}

function setUpChoice() {
  const dialog = $("choose"), input = $("choose-input");
  input.addEventListener("input", () => { offer($("choose-options"), input.value.toLowerCase()); $("choose-error").textContent = ""; });
  $("choose-cancel").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => { if (choosing.back) choosing.back.focus(); else focusSample(choosing.index); });
  dialog.querySelector("form").addEventListener("submit", (event) => {
    const { index } = choosing, label = byName.get(input.value) ?? only(input.value);
    const problem = label === undefined ? "No such class; choose one from the list."
      : label === labelAt(bySample.get(index)) ? "That is the label it has." : "";
    $("choose-error").textContent = problem;
    if (problem) event.preventDefault();
    else { decide(index, "wrong", label); say(`#${index}: ${outcome(index)}`); }
  });
}

const only = (text) => {
  const found = text ? lower.flatMap((name, id) => (name.includes(text.toLowerCase()) ? [id] : [])) : [];
  return found.length === 1 ? found[0] : undefined;
};

function setUpDecisions() {
  if (!$("save")) return;
  document.querySelector("main").addEventListener("click", onDecision);
  $("undo").addEventListener("click", undo);
  $("save").addEventListener("click", save);
  $("forget").addEventListener("click", forget);
  $("load").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", async () => {
    const [file] = $("file").files;
    if (file) await load(file);
    $("file").value = "";
  });
  $("help").addEventListener("click", () => $("keys").showModal());
  setUpChoice();
}

// What this browser kept, once all panels are there.
function takeKept() {
  if (!$("save")) return;
  const earlier = storage?.getItem(data.key);
  if (earlier) {
    try { fromCsv(earlier); unsaved = false; } catch { /* not ours, or torn: start afresh */ }
  }
  $("keeping").textContent = kept ? "Decisions are also kept in this browser until you come back." : "This browser keeps nothing for this page: save before you leave.";
  tally();
  window.addEventListener("pagehide", () => { if (keeping) keep(); });
  window.addEventListener("beforeunload", (event) => { if (unsaved && !kept) event.preventDefault(); });
}
