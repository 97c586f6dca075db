
// -- the gallery: only the cards near the window exist ---------------------------------------

const OVERSCAN = 6; // cards drawn above and below the window
const gallery = $("gallery");
const onNarrow = []; // what else follows the choice of a class
const filter = { text: "", exact: null, pair: null, state: "", sort: "suspicion" };
const cards = new Map(); // position in the view -> element
let view = [], current = 0, rowHeight = 0, rise = 0;

function matches(suspect) {
  const made = decisions.get(indexAt(suspect.sample));
  const own = labelAt(suspect.sample), other = suspect.suggested;
  if (filter.state === "flagged" || filter.state === "unflagged") {
    if (isFlagged(indexAt(suspect.sample)) !== (filter.state === "flagged")) return false;
  } else if (filter.state && (made ? made.decision : "none") !== filter.state) return false;
  if (filter.pair) return own === filter.pair[0] && other === filter.pair[1];
  if (filter.exact !== null) return own === filter.exact || other === filter.exact;
  return !filter.text || lower[own].includes(filter.text) || (other >= 0 && lower[other].includes(filter.text));
}

const orders = {
  suspicion: null,
  class: (a, b) => byLabel(labelAt(suspects[a].sample), labelAt(suspects[b].sample)) || a - b,
  chance: (a, b) => (suspects[b].chance ?? -1) - (suspects[a].chance ?? -1) || a - b,
  margin: (a, b) => (suspects[b].margin ?? -Infinity) - (suspects[a].margin ?? -Infinity) || a - b,
};

function refresh() {
  view = suspects.map((_, i) => i).filter((i) => matches(suspects[i]));
  if (orders[filter.sort]) view.sort(orders[filter.sort]);
  current = 0;
  $("shown").textContent = view.length === suspects.length
    ? many(view.length, "suspect") : `${view.length.toLocaleString("en")} of ${many(suspects.length, "suspect")}`;
  $("nothing").hidden = view.length > 0;
  if (gallery.getBoundingClientRect().top < 0) $("suspects").scrollIntoView();
  redraw();
  for (const follow of onNarrow) follow();
}

function redraw() {
  gallery.replaceChildren();
  cards.clear();
  if (view.length && !rowHeight) {
    // Positions follow from one card's height, which the reader's font size decides.
    const probe = h("article", { class: "card" });
    gallery.append(probe);
    const style = getComputedStyle(probe);
    rise = 0.6 * parseFloat(getComputedStyle(document.documentElement).fontSize);
    rowHeight = parseFloat(style.height) + rise;
    gallery.replaceChildren();
  }
  // Cards stop below the toolbar, which may be one line or two.
  const bar = gallery.parentElement.querySelector(".toolbar");
  gallery.style.setProperty("--bar", `${getComputedStyle(bar).position === "sticky" ? bar.offsetHeight : 0}px`);
  gallery.style.height = `${Math.max(0, view.length * rowHeight)}px`;
  draw();
}

function draw() {
  if (!view.length) return;
  const top = gallery.getBoundingClientRect().top;
  const first = Math.max(0, Math.floor(-top / rowHeight) - OVERSCAN);
  const last = Math.min(view.length - 1, Math.ceil((window.innerHeight - top) / rowHeight) + OVERSCAN);
  for (const [position, card] of cards) {
    if ((position < first || position > last) && !card.contains(document.activeElement)) {
      card.remove();
      cards.delete(position);
    }
  }
  for (let position = first; position <= last; position++) {
    if (cards.has(position)) continue;
    const card = build(position);
    cards.set(position, card);
    // In reading order, for Tab and for screen readers.
    const next = [...gallery.children].find((other) => Number(other.dataset.position) > position);
    gallery.insertBefore(card, next || null);
  }
}

const doubted = new Set(suspects.map((suspect) => suspect.sample));

function near(title, label, ids) {
  const list = h("ul", {}, ...ids.map((id) =>
    h("li", { class: samples[id][2] < 0 && samples[id][3] !== null ? "text" : null }, shot(id, false),
      doubted.has(id) ? h("span", { class: "doubted", title: "its own label is a suspect, too" }, "suspect") : null)));
  return h("div", { class: "near" }, h("p", {}, title, label < 0 ? "" : isolated(shown[label])), ids.length ? list : null);
}

function build(position) {
  const id = view[position], suspect = suspects[id];
  const own = labelAt(suspect.sample), other = suspect.suggested, index = indexAt(suspect.sample);
  const card = h("article", {
    class: samples[suspect.sample][2] < 0 && samples[suspect.sample][3] !== null ? "card reading" : "card", "data-position": position, "data-index": index, "data-viewer": "",
    "aria-posinset": position + 1, "aria-setsize": view.length,
    tabindex: position === current ? 0 : -1,
  });
  card.style.top = `${position * rowHeight}px`;
  const name = nameAt(suspect.sample);
  const measures = [["margin", suspect.margin, 3], ["p", suspect.p, 3], ["q", suspect.q, 3], ["weight", canFlag ? null : suspect.weight, 2]];
  const button = (decision, text, key) => h("button", {
    type: "button", class: decision, "data-decision": decision, title: `${WORDS[decision]} (${key})`,
  }, text);
  card.append(
    shot(suspect.sample),
    h("div", { class: "about" },
      h("dl", { class: "verdict" },
        h("dt", {}, "Label"), h("dd", { class: "given", title: shown[own] }, isolated(shown[own])),
        h("dt", {}, "Suggested"), h("dd", { class: "better", title: other < 0 ? null : shown[other] }, other >= 0 ? isolated(shown[other]) : suspect.stranger ? "none: it fits no class" : "–")),
      suspect.chance === null ? null : h("p", { class: "chance" }, `${percent(suspect.chance)} likely wrong${suspect.sure === null ? "" : `, ${percent(suspect.sure)} as suggested`} `, h("span", { class: "badge flag" }, "flagged")),
      h("p", { class: "measures" }, ...measures.filter(([, value]) => value !== null)
        .map(([name, value, digits]) => h("span", {}, `${name} ${number(value, digits)}`))),
      suspect.q === null || suspect.chance !== null ? null : h("p", { class: "meaning" }, "q: share wrong of all that fit as well"),
      h("p", { class: "source", title: name ? show(name) : null }, `#${index} `, name ? isolated(show(name)) : "")),
    h("div", { class: "nears" },
      near("Nearest labelled ", own, suspect.own),
      other >= 0 ? near("Nearest labelled ", other, suspect.other)
        : suspect.other.length ? near("Fits next best: ", labelAt(suspect.other[0]), suspect.other) : near("", -1, [])),
    h("div", { class: "decide", role: "group", "aria-label": "Decision" },
      button("wrong", "Wrong", "w"), button("right", "Right", "r"), button("unsure", "Unsure", "u"),
      other < 0 ? null : h("button", { type: "button", class: "take whole", "data-take": other, title: `wrong; take ${shown[other]} (s)` }, "Is ", isolated(shown[other])),
      h("button", { type: "button", class: "other whole", "data-other": "", title: "wrong; choose another label (e)" }, "Another label…"),
      h("p", { class: "outcome" })));
  showDecision(card);
  showFlag(card);
  return card;
}

function nameCard(card) {
  const suspect = suspects[view[Number(card.dataset.position)]];
  const suggestion = suspect.suggested < 0 ? "no suggestion" : `suggested ${shown[suspect.suggested]}`;
  const index = indexAt(suspect.sample), flag = canFlag && isFlagged(index) ? ", flagged" : "";
  card.setAttribute("aria-label", `Sample ${index}, labelled ${shown[labelAt(suspect.sample)]}, ${suggestion}${flag}, ${outcome(index)}`);
}

function showFlag(card) {
  card.dataset.flagged = String(canFlag && isFlagged(Number(card.dataset.index)));
  nameCard(card);
}

// The card of a sample, if there is one and it is not filtered out.
function focusSample(index) {
  const position = view.findIndex((id) => indexAt(suspects[id].sample) === index);
  if (position >= 0) focusCard(position);
  return position >= 0;
}

function focusCard(position) {
  if (!view.length) return;
  position = Math.min(view.length - 1, Math.max(0, position));
  cards.get(current)?.setAttribute("tabindex", "-1");
  current = position;
  if (!cards.has(position)) {
    const top = gallery.getBoundingClientRect().top + window.scrollY;
    window.scrollTo(0, top + position * rowHeight - window.innerHeight / 3);
    draw();
  }
  const card = cards.get(position);
  card.setAttribute("tabindex", "0");
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
  draw();
}

function narrow(change, text) {
  Object.assign(filter, { text: "", exact: null, pair: null }, change);
  $("filter").value = text;
  for (const row of document.querySelectorAll("tr.chosen")) row.classList.remove("chosen");
  refresh();
  $("suspects").scrollIntoView();
  draw();
  if (view.length) focusCard(0);
  say(many(view.length, "suspect"));
}

function chooseClass(label) {
  if (!gallery) return;
  narrow({ exact: label }, nameOf[label]);
  for (const row of document.querySelectorAll(`#class-table tr[data-label="${label}"]`)) row.classList.add("chosen");
}

// -- keys and clicks ---------------------------------------------------------------------------

function act(id, action, byKey) {
  const suspect = suspects[id], index = indexAt(suspect.sample);
  let decided = false;
  if (action === "x") { if (decisions.has(index)) { decide(index, null); say(`#${index}: not decided`); } }
  else if (action === "e") chooseLabel(index);
  else if (action === "s") { if (suspect.suggested >= 0) decided = mark(index, "wrong", suspect.suggested); }
  else decided = mark(index, action);
  if (decided && byKey && $("advance").checked && current + 1 < view.length) focusCard(current + 1);
}

const DECISION = { w: "wrong", r: "right", u: "unsure", s: "s", e: "e", x: "x" };
const MOVE = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };

// The next card that nobody decided on, after this one or else from the start.
function nextOpen() {
  const open = (id) => !decisions.has(indexAt(suspects[id].sample));
  const after = view.findIndex((id, position) => position > current && open(id));
  const position = after >= 0 ? after : view.findIndex(open);
  if (position >= 0) focusCard(position);
  else say("all of these are decided");
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = event.target;
  if (document.querySelector("dialog[open]") || target.closest?.("input, select, textarea")) return;
  const inGallery = gallery.contains(target), key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (key.startsWith("Arrow") && target.closest?.(".words")) return; // scrolls a long text
  const onCard = target.matches?.(".card");
  if (!inGallery && target !== document.body && target !== $("suspects") && !target.matches?.("summary")) return;
  if (event.key.length === 1 && !$("shortcuts").checked) return;
  if (key === "?") $("keys").showModal();
  else if (key === "/") { $("filter").scrollIntoView({ block: "nearest" }); $("filter").select(); $("filter").focus(); }
  else if (key === "z") undo();
  else if (key === "n" && view.length) nextOpen();
  else if ((key === "v" || (key === "Enter" && onCard)) && inGallery && view.length) enlarge(cards.get(current));
  else if (Object.hasOwn(DECISION, key) && inGallery && view.length) act(view[current], DECISION[key], true);
  // Outside the gallery the arrows, Home and End scroll the page as everywhere.
  else if (Object.hasOwn(MOVE, key) && (inGallery || key.length === 1)) focusCard(inGallery ? current + MOVE[key] : current);
  else return;
  event.preventDefault();
}

function onGallery(event) {
  const card = event.target.closest(".card");
  if (!card) return;
  const button = event.target.closest("button");
  cards.get(current)?.setAttribute("tabindex", "-1");
  current = Number(card.dataset.position);
  card.setAttribute("tabindex", "0");
  if (event.type !== "click") return;
  if (button?.matches(".zoom")) return;
  if (!button) { card.focus({ preventScroll: true }); return; }
  const action = button.dataset.decision || ("take" in button.dataset ? "s" : "e");
  act(view[current], action, false);
}

function setUpGallery() {
  if (!gallery) return;
  gallery.addEventListener("click", onGallery);
  gallery.addEventListener("focusin", onGallery);
  document.addEventListener("keydown", onKey);
  let waiting = false;
  window.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }, { passive: true });
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) { draw(); return; }
    width = window.innerWidth;
    rowHeight = 0;
    redraw();
  });
  $("filter").addEventListener("input", () => {
    const text = $("filter").value;
    filter.exact = byName.get(text) ?? null;
    filter.pair = null;
    filter.text = text.toLowerCase();
    offer($("filter-options"), filter.text);
    for (const row of document.querySelectorAll("tr.chosen")) row.classList.remove("chosen");
    refresh();
  });
  $("filter").addEventListener("focus", () => offer($("filter-options"), filter.text));
  $("filter").addEventListener("keydown", (event) => { if (event.key === "Enter") focusCard(0); });
  $("state").addEventListener("change", () => { filter.state = $("state").value; refresh(); });
  $("sort").addEventListener("change", () => { filter.sort = $("sort").value; refresh(); });
  $("reset").addEventListener("click", () => {
    Object.assign(filter, { text: "", exact: null, pair: null, state: "" });
    $("filter").value = $("state").value = "";
    refresh();
    focusCard(0);
  });
  refresh();
}
