
// -- the table of classes --------------------------------------------------------------------
function remarks(entry) {
  const badges = [];
  if (entry.two) badges.push(h("span", { class: "badge" }, "looks like two classes"));
  if (entry.like >= 0) badges.push(h("span", { class: "badge" }, "looks the same as ", isolated(shown[entry.like])));
  return badges;
}

function meter(value, bad) {
  const fill = h("i");
  fill.style.width = `${100 * Math.min(1, Math.max(0, value || 0))}%`;
  return h("span", { class: bad ? "bar bad" : "bar", "aria-hidden": "true" }, fill);
}

function classRow(entry) {
  const choose = h("button", { type: "button", class: "link" }, isolated(shown[entry.label]));
  choose.addEventListener("click", () => chooseClass(entry.label));
  return h("tr", { "data-label": entry.label, class: entry.label === filter.exact ? "chosen" : null },
    h("td", {}, choose),
    h("td", { class: "number" }, entry.support.toLocaleString("en")),
    h("td", { class: "number" }, number(entry.weight, 2), meter(entry.weight)),
    h("td", { class: "number" }, percent(entry.flagged), meter(entry.flagged, true)),
    h("td", {}, ...remarks(entry)));
}

const table = { key: "flagged", sign: -1 };
const keys = {
  label: null,
  support: (c) => c.support,
  weight: (c) => c.weight ?? 2,
  flagged: (c) => c.flagged ?? -1,
  remark: (c) => 2 * (c.like >= 0) + c.two,
};

function setUpClasses() {
  if (!$("class-table")) return;
  const fill = chunked($("class-table").tBodies[0], $("class-more"), 100, classRow);
  const draw = () => {
    const text = $("class-search").value.toLowerCase();
    const key = keys[table.key];
    const found = classes.filter((c) => lower[c.label].includes(text));
    found.sort((a, b) => (key ? table.sign * (key(a) - key(b)) : table.sign * byLabel(a.label, b.label)) || byLabel(a.label, b.label));
    fill(found);
  };
  const heads = [...$("class-table").querySelectorAll("thead th")];
  for (const head of heads) {
    head.firstElementChild.addEventListener("click", () => {
      const key = head.dataset.key;
      const descending = key !== "label" && key !== "weight";
      table.sign = key === table.key ? -table.sign : descending ? -1 : 1;
      table.key = key;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", table.sign > 0 ? "ascending" : "descending");
      draw();
    });
  }
  $("class-search").addEventListener("input", draw);
  draw();
}

// -- the table of confused classes ---------------------------------------------------------------

function confusionRow(entry) {
  const choose = h("button", { type: "button", class: "link" }, isolated(shown[entry.label]));
  const row = h("tr", {},
    h("td", {}, choose),
    h("td", {}, isolated(shown[entry.suggested])),
    h("td", { class: "number" }, entry.count.toLocaleString("en")),
    h("td", { class: "number" }, percent(entry.share)),
    h("td", { class: "number range" }, `${percent(entry.low)} to ${percent(entry.high)}`));
  choose.addEventListener("click", () => {
    if (!gallery) return;
    narrow({ pair: [entry.label, entry.suggested] }, `${nameOf[entry.label]} → ${nameOf[entry.suggested]}`);
    row.classList.add("chosen");
  });
  return row;
}

function setUpConfusions() {
  if ($("confusion-table")) chunked($("confusion-table").tBodies[0], $("confusion-more"), 50, confusionRow)(confusions);
}

// -- copies ------------------------------------------------------------------------------------------

function copy(id, other) {
  const label = labelAt(other) === labelAt(id) ? -1 : labelAt(other);
  const side = h("div", { class: "side", "data-index": indexAt(id) },
    shot(id), h("p", {}, `#${indexAt(id)} `, h("strong", {}, isolated(shown[labelAt(id)]))),
    h("p", { class: "source", title: show(nameAt(id)) }, nameAt(id) ? isolated(show(nameAt(id))) : "\u00a0"),
    keepOrDrop(id, label));
  // The words are there even beside a picture: copies may differ in them alone.
  if (samples[id][2] >= 0 && samples[id][3] !== null) side.children[0].after(h("p", { class: "caption", dir: "auto" }, clean(samples[id][3])));
  showDecision(side);
  return side;
}

function setUpDuplicates() {
  if (!$("pairs")) return;
  const differ = (pair) => labelAt(pair.a) !== labelAt(pair.b);
  const alike = (value) => (value !== null && value > 0.9999995 ? "the same" : `similarity ${number(value)}`);
  chunked($("pairs"), $("pair-more"), 24, (pair) =>
    h("li", { "data-viewer": "" }, copy(pair.a, pair.b), copy(pair.b, pair.a), h("p", { class: "similarity" },
      differ(pair) ? h("span", { class: "badge" }, "different labels") : null, alike(pair.similarity))),
  )([...duplicates.filter(differ), ...duplicates.filter((pair) => !differ(pair))]);
}

// -- photos that are bad as pictures -----------------------------------------------------------------

function photoItem(photo) {
  const id = photo.sample;
  const item = h("li", { "data-index": indexAt(id) },
    shot(id),
    h("p", {}, ...photo.problems.map((problem) => h("span", { class: "badge" }, problem))),
    h("p", { class: "source", title: show(nameAt(id)) }, `#${indexAt(id)} `, isolated(shown[labelAt(id)]), nameAt(id) ? " · " : "", nameAt(id) ? isolated(show(nameAt(id))) : ""),
    keepOrDrop(id));
  showDecision(item);
  return item;
}

function setUpPhotos() {
  if (!$("photos")) return;
  const fill = chunked($("photos"), $("photo-more"), 24, photoItem), choice = $("photo-problem");
  const counts = new Map();
  for (const problem of photos.flatMap((photo) => photo.problems)) counts.set(problem, (counts.get(problem) ?? 0) + 1);
  for (const [problem, count] of counts) choice.append(h("option", { value: problem }, `${problem} (${count.toLocaleString("en")})`));
  const draw = () => fill(photos.filter((photo) => !choice.value || photo.problems.includes(choice.value)));
  choice.addEventListener("change", draw);
  draw();
}
