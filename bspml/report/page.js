(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { labels, images, samples, suspects, classes, duplicates } = data;
  const $ = (id) => document.getElementById(id);
  const WORDS = { wrong: "label wrong", right: "label right", unsure: "unsure" };
  const COLUMNS = ["index", "label", "decision", "new_label", "name"]; // name: where there are any
  const OVERSCAN = 4; // cards drawn above and below the window

  // -- text ----------------------------------------------------------------------------------

  // What would be invisible, turn the text around or be no character at all shows as a dot.
  // Joiners stay: scripts and emoji need them.
  const UNSEEN = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]|(?![\u200c\u200d])\p{Cf}/gu;
  const show = (text) => text.replace(/\r\n?|\n/g, "⏎").replace(UNSEEN, "·") || "(empty)";
  const shown = labels.map(show);
  const number = (value, digits = 3) =>
    value === null ? "–" : value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits
      ? value.toExponential(0) : value.toFixed(digits);
  const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`);
  const many = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

  // Labels that look alike on the page must still be told apart where one is chosen by its name.
  const byName = new Map();
  const nameOf = labels.map((_, id) => {
    let name = shown[id];
    for (let i = 2; byName.has(name); i++) name = `${shown[id]} (${i})`;
    byName.set(name, id);
    return name;
  });
  const lower = nameOf.map((name) => name.toLowerCase());

  function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }
  const isolated = (text) => h("bdi", {}, text);

  let fading = 0;
  function say(text) {
    const status = $("status");
    status.textContent = text;
    status.classList.add("on");
    clearTimeout(fading);
    fading = setTimeout(() => status.classList.remove("on"), 3500);
  }

  // -- one sample: its picture, its words, or at least its number ------------------------------

  function shot(id, name = "") {
    const [index, label, image, text] = samples[id];
    const title = `#${index}, labelled ${shown[label]}${name && `, ${show(name)}`}`;
    const box = h("div", { class: "shot", title });
    const nothing = (why) => h("span", { class: "none" }, `#${index}`, h("br"), why);
    if (image >= 0) {
      const picture = h("img", { loading: "lazy", decoding: "async", alt: title });
      picture.addEventListener("load", () => picture.classList.toggle("tiny", picture.naturalWidth < 65));
      picture.addEventListener("error", () => box.replaceChildren(nothing("image not found")));
      picture.src = images[image];
      box.append(picture);
    } else if (text !== null) {
      box.append(h("div", { class: "words", dir: "auto" }, text.replace(UNSEEN, (c) => (c === "\n" || c === "\t" ? c : "·"))));
    } else box.append(nothing(""));
    return box;
  }

  // -- the table of classes --------------------------------------------------------------------

  function chunked(container, more, size, draw) {
    let items = [], done = 0;
    const next = () => {
      const part = items.slice(done, done + size);
      container.append(...part.map(draw));
      done += part.length;
      more.hidden = done >= items.length;
      more.textContent = `Show ${Math.min(size, items.length - done)} more of ${many(items.length - done, "other")}`;
      return part.length;
    };
    more.addEventListener("click", () => {
      const first = done;
      next();
      const row = container.children[first]; // the button may be gone: go on where it was
      (row.querySelector("button") || more).focus();
    });
    return (all) => { items = all; done = 0; container.replaceChildren(); next(); };
  }

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

  const collator = new Intl.Collator("en", { numeric: true });
  const byLabel = (a, b) => collator.compare(shown[a], shown[b]);
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

  function setUpDuplicates() {
    if (!$("pairs")) return;
    const side = (id) => h("div", {}, shot(id), h("p", {}, `#${samples[id][0]} `, h("strong", {}, isolated(shown[samples[id][1]]))));
    const differ = (pair) => samples[pair.a][1] !== samples[pair.b][1];
    chunked($("pairs"), $("pair-more"), 24, (pair) =>
      h("li", {}, side(pair.a), side(pair.b), h("p", { class: "similarity" },
        differ(pair) ? h("span", { class: "badge" }, "different labels") : null, `similarity ${number(pair.similarity)}`)),
    )([...duplicates.filter(differ), ...duplicates.filter((pair) => !differ(pair))]);
  }

  // -- decisions -------------------------------------------------------------------------------

  const indexOf = (suspect) => samples[suspect.sample][0];
  const labelOf = (suspect) => samples[suspect.sample][1];
  const bySample = new Map(suspects.map((suspect, i) => [indexOf(suspect), i]));
  const decisions = new Map(); // suspect -> {decision, label: id of the new label or -1}
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

  function decide(suspect, decision, label = -1, remember = true) {
    const before = decisions.get(suspect) || null;
    if (remember) undoable.push([suspect, before]);
    if (decision === null) decisions.delete(suspect);
    else decisions.set(suspect, { decision, label });
    unsaved = true;
    if (!keeping) keeping = setTimeout(keep, 400);
    redecide(suspect);
    tally();
  }

  function redecide(suspect) {
    for (const [position, card] of cards) if (view[position] === suspect) update(card, suspect);
  }

  const outcome = (suspect) => {
    const made = decisions.get(suspect);
    if (!made) return "not decided";
    return made.label < 0 ? WORDS[made.decision] : `${WORDS[made.decision]}, is ${shown[made.label]}`;
  };

  function mark(suspect, decision, label = -1) {
    const made = decisions.get(suspect);
    const same = made && made.decision === decision && made.label === label;
    decide(suspect, same ? null : decision, label);
    say(`#${indexOf(suspects[suspect])}: ${outcome(suspect)}`);
    return !same;
  }

  function undo() {
    if (!undoable.length) return;
    const [suspect, before] = undoable.pop();
    decide(suspect, before && before.decision, before ? before.label : -1, false);
    say(`undone; #${indexOf(suspects[suspect])}: ${outcome(suspect)}`);
    const position = view.indexOf(suspect);
    if (position >= 0) focusCard(position);
  }

  function tally() {
    const count = { wrong: 0, right: 0, unsure: 0 };
    for (const { decision } of decisions.values()) count[decision]++;
    $("progress").textContent = decisions.size
      ? `${decisions.size} decided: ${count.wrong} wrong, ${count.right} right, ${count.unsure} unsure` : "none decided";
    $("undo").disabled = !undoable.length;
  }

  // -- the decisions as CSV --------------------------------------------------------------------

  const protect = (text) => (data.integers ? text : csv.protect(text));

  function toCsv() {
    const rows = [...decisions].map(([i, { decision, label }]) =>
      [indexOf(suspects[i]), protect(labels[labelOf(suspects[i])]), decision, label < 0 ? "" : protect(labels[label]), suspects[i].name && csv.protect(suspects[i].name)]);
    rows.push(...elsewhere.values());
    rows.sort((a, b) => Number(a[0]) - Number(b[0]));
    const width = rows.some((row) => row[4]) ? 5 : 4;
    return [COLUMNS, ...rows].map((row) => csv.line(row.slice(0, width))).join("");
  }

  // Labels as the file wrote them to their numbers here; undefined for an unknown one.
  const byLabelText = new Map(labels.map((label, id) => [label, id]));
  const byTrimmed = new Map(labels.map((label, id) => [label.trim(), id]));
  // As it stands; without spaces around it only where it is no class and that is one.
  const classOf = (text) => byLabelText.get(text) ?? byTrimmed.get(text.trim());
  // With the table of classes, the page knows all labels and how many samples there are.
  const total = classes.reduce((sum, entry) => sum + entry.support, 0);

  // As `bspml audit --apply` reads them: index and decision are needed, label and new_label not.
  function rowsOf(text) {
    const [head = [], ...rows] = csv.parse(text.replace(/^\ufeff/, ""));
    const names = head.map((name) => name.trim().toLowerCase());
    const column = COLUMNS.map((name) => names.indexOf(name));
    if (column[0] < 0 || column[2] < 0) throw new Error(`expected the columns ${COLUMNS.join(", ")}; got ${head.slice(0, 8).join(", ") || "nothing"}`);
    return rows.map((cells) => {
      const [index, label, decision, newLabel, name] = column.map((place) => cells[place] ?? "");
      return [index.trim(), label, decision.trim().toLowerCase(), newLabel, name];
    });
  }

  const fits = (said, own) => said === own || (!byLabelText.has(said) && said.trim() === own.trim());

  // Why these must be decisions about other data, or "".
  function contradiction(rows) {
    for (const [index, label, , , name] of rows) {
      if (!/^\d+$/.test(index)) continue;
      const suspect = bySample.get(Number(index)), said = csv.bare(label);
      if (total && Number(index) >= total) return `there is no sample ${index} here`;
      const called = suspect === undefined ? "" : suspects[suspect].name;
      if (name !== "" && called && csv.bare(name) !== called) return `sample ${index} is ${show(called)} here, ${show(csv.bare(name))} in the file`;
      if (said === "") continue;
      if (suspect !== undefined && !fits(said, labels[labelOf(suspects[suspect])])) return `sample ${index} is labelled ${shown[labelOf(suspects[suspect])]} here, ${show(said)} in the file`;
      if (total && classOf(said) === undefined) return `there is no class ${show(said)} here, which sample ${index} has in the file`;
    }
    return "";
  }

  function fromCsv(text) {
    const rows = rowsOf(text), other = contradiction(rows);
    if (other) throw new Error(`${other}; are these decisions about other data?`);
    const report = { loaded: 0, elsewhere: 0, refused: 0 };
    for (const [index, label, decision, newLabel, name] of rows) {
      if (!/^\d+$/.test(index) || !Object.hasOwn(WORDS, decision)) { report.refused++; continue; }
      const suspect = bySample.get(Number(index));
      // A label that is right or unsure may be repeated as the new one.
      const id = newLabel === "" || decision !== "wrong" ? -1 : classOf(csv.bare(newLabel));
      if (suspect === undefined) {
        elsewhere.set(Number(index), [index, label, decision, newLabel, name]);
        report.elsewhere++;
      } else if (id === undefined || id === labelOf(suspects[suspect])) report.refused++;
      else { decide(suspect, decision, id, false); report.loaded++; }
    }
    if (report.elsewhere) { unsaved = true; if (!keeping) keeping = setTimeout(keep, 400); }
    offerToForget();
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

  // -- the gallery: only the cards near the window exist ---------------------------------------

  const gallery = $("gallery");
  const filter = { text: "", exact: null, state: "", sort: "suspicion" };
  const cards = new Map(); // position in the view -> element
  let view = [], current = 0, rowHeight = 0, rise = 0;

  function matches(suspect) {
    const made = decisions.get(bySample.get(indexOf(suspect)));
    if (filter.state && (made ? made.decision : "none") !== filter.state) return false;
    const own = labelOf(suspect), other = suspect.suggested;
    if (filter.exact !== null) return own === filter.exact || other === filter.exact;
    return !filter.text || lower[own].includes(filter.text) || (other >= 0 && lower[other].includes(filter.text));
  }

  const orders = {
    suspicion: null,
    class: (a, b) => byLabel(labelOf(suspects[a]), labelOf(suspects[b])) || a - b,
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

  function near(title, label, ids) {
    const list = h("ul", {}, ...ids.map((id) =>
      h("li", { class: samples[id][2] < 0 && samples[id][3] !== null ? "text" : null }, shot(id))));
    return h("div", { class: "near" }, h("p", {}, title, label < 0 ? "" : isolated(shown[label])), ids.length ? list : null);
  }

  function build(position) {
    const id = view[position], suspect = suspects[id];
    const own = labelOf(suspect), other = suspect.suggested, index = indexOf(suspect);
    const card = h("article", {
      class: samples[suspect.sample][2] < 0 && samples[suspect.sample][3] !== null ? "card reading" : "card", "data-position": position, "data-index": index,
      "aria-posinset": position + 1, "aria-setsize": view.length,
      tabindex: position === current ? 0 : -1,
    });
    card.style.top = `${position * rowHeight}px`;
    const measures = [["margin", suspect.margin, 3], ["p", suspect.p, 3], ["q", suspect.q, 3], ["weight", suspect.weight, 2]];
    const button = (decision, text, key) => h("button", {
      type: "button", class: decision, "data-decision": decision, title: `${WORDS[decision]} (${key})`,
    }, text);
    card.append(
      shot(suspect.sample, suspect.name),
      h("div", { class: "about" },
        h("dl", { class: "verdict" },
          h("dt", {}, "Label"), h("dd", { class: "given", title: shown[own] }, isolated(shown[own])),
          h("dt", {}, "Suggested"), h("dd", { class: "better", title: other < 0 ? null : shown[other] }, other < 0 ? "–" : isolated(shown[other]))),
        h("p", { class: "measures" }, ...measures.filter(([, value]) => value !== null)
          .map(([name, value, digits]) => h("span", {}, `${name} ${number(value, digits)}`))),
        h("p", { class: "source", title: suspect.name ? show(suspect.name) : null }, `#${index} `, suspect.name ? isolated(show(suspect.name)) : "")),
      h("div", { class: "nears" },
        near("Nearest labelled ", own, suspect.own),
        other < 0 ? near("", -1, []) : near("Nearest labelled ", other, suspect.other)),
      h("div", { class: "decide", role: "group", "aria-label": "Decision" },
        button("wrong", "Wrong", "w"), button("right", "Right", "r"), button("unsure", "Unsure", "u"),
        other < 0 ? null : h("button", { type: "button", class: "take whole", "data-take": other, title: `wrong; take ${shown[other]} (s)` }, "Is ", isolated(shown[other])),
        h("button", { type: "button", class: "other whole", "data-other": "", title: "wrong; choose another label (e)" }, "Another label…"),
        h("p", { class: "outcome" })));
    update(card, id);
    return card;
  }

  function update(card, id) {
    const suspect = suspects[id], made = decisions.get(id);
    card.dataset.decision = made ? made.decision : "";
    for (const button of card.querySelectorAll("[data-decision]")) {
      button.setAttribute("aria-pressed", String(Boolean(made) && made.decision === button.dataset.decision));
    }
    const take = card.querySelector(".take");
    if (take) take.setAttribute("aria-pressed", String(Boolean(made) && made.label === suspect.suggested));
    card.querySelector(".outcome").textContent = made && made.label >= 0 && made.label !== suspect.suggested ? `is ${shown[made.label]}` : "";
    const suggestion = suspect.suggested < 0 ? "no suggestion" : `suggested ${shown[suspect.suggested]}`;
    card.setAttribute("aria-label", `Sample ${indexOf(suspect)}, labelled ${shown[labelOf(suspect)]}, ${suggestion}, ${outcome(id)}`);
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

  function chooseClass(label) {
    filter.exact = label;
    filter.text = "";
    $("filter").value = nameOf[label];
    for (const row of document.querySelectorAll("#class-table tbody tr")) row.classList.toggle("chosen", Number(row.dataset.label) === label);
    refresh();
    $("suspects").scrollIntoView();
    draw();
    if (view.length) focusCard(0);
    say(many(view.length, "suspect"));
  }

  // -- choosing a class by its name --------------------------------------------------------------

  function offer(list, text) {
    const options = [];
    for (let id = 0; id < labels.length && options.length < 50; id++) {
      if (lower[id].includes(text)) options.push(h("option", { value: nameOf[id] }));
    }
    list.replaceChildren(...options);
  }

  function chooseLabel(suspect) {
    $("choose-for").textContent = `#${indexOf(suspects[suspect])}, labelled ${shown[labelOf(suspects[suspect])]}`;
    $("choose-input").value = "";
    $("choose-error").textContent = "";
    offer($("choose-options"), "");
    $("choose").dataset.suspect = suspect;
    $("choose").showModal();
    $("choose-input").focus();
  }

  function setUpChoice() {
    const dialog = $("choose"), input = $("choose-input");
    const back = () => focusCard(Math.max(0, view.indexOf(Number(dialog.dataset.suspect))));
    input.addEventListener("input", () => { offer($("choose-options"), input.value.toLowerCase()); $("choose-error").textContent = ""; });
    $("choose-cancel").addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", back);
    dialog.querySelector("form").addEventListener("submit", (event) => {
      const suspect = Number(dialog.dataset.suspect);
      const label = byName.get(input.value) ?? only(input.value);
      const problem = label === undefined ? "No such class; choose one from the list."
        : label === labelOf(suspects[suspect]) ? "That is the label it has." : "";
      $("choose-error").textContent = problem;
      if (problem) event.preventDefault();
      else { decide(suspect, "wrong", label); say(`#${indexOf(suspects[suspect])}: ${outcome(suspect)}`); }
    });
  }

  const only = (text) => {
    const found = text ? lower.flatMap((name, id) => (name.includes(text.toLowerCase()) ? [id] : [])) : [];
    return found.length === 1 ? found[0] : undefined;
  };

  // -- keys and clicks ---------------------------------------------------------------------------

  function act(id, action, byKey) {
    const suspect = suspects[id];
    let decided = false;
    if (action === "x") { if (decisions.has(id)) { decide(id, null); say(`#${indexOf(suspect)}: not decided`); } }
    else if (action === "e") chooseLabel(id);
    else if (action === "s") { if (suspect.suggested >= 0) decided = mark(id, "wrong", suspect.suggested); }
    else decided = mark(id, action);
    if (decided && byKey && $("advance").checked && current + 1 < view.length) focusCard(current + 1);
  }

  const DECISION = { w: "wrong", r: "right", u: "unsure", s: "s", e: "e", x: "x" };
  const MOVE = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target;
    if (document.querySelector("dialog[open]") || target.closest?.("input, select, textarea")) return;
    const inGallery = gallery.contains(target), key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (key.startsWith("Arrow") && target.closest?.(".words")) return; // scrolls a long text
    if (!inGallery && target !== document.body && target !== $("suspects")) return;
    if (event.key.length === 1 && !$("shortcuts").checked) return;
    if (key === "?") $("keys").showModal();
    else if (key === "/") { $("filter").scrollIntoView({ block: "nearest" }); $("filter").select(); $("filter").focus(); }
    else if (key === "z") undo();
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
      filter.text = text.toLowerCase();
      offer($("filter-options"), filter.text);
      for (const row of document.querySelectorAll("#class-table tbody tr.chosen")) row.classList.remove("chosen");
      refresh();
    });
    $("filter").addEventListener("focus", () => offer($("filter-options"), filter.text));
    $("filter").addEventListener("keydown", (event) => { if (event.key === "Enter") focusCard(0); });
    $("state").addEventListener("change", () => { filter.state = $("state").value; refresh(); });
    $("sort").addEventListener("change", () => { filter.sort = $("sort").value; refresh(); });
    $("reset").addEventListener("click", () => {
      Object.assign(filter, { text: "", exact: null, state: "" });
      $("filter").value = $("state").value = "";
      refresh();
      focusCard(0);
    });
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
    const earlier = storage?.getItem(data.key);
    refresh();
    if (earlier) {
      try { fromCsv(earlier); unsaved = false; } catch { /* not ours, or torn: start afresh */ }
    }
    $("keeping").textContent = kept ? "Decisions are also kept in this browser until you come back." : "This browser keeps nothing for this page: save before you leave.";
    tally();
    window.addEventListener("pagehide", () => { if (keeping) keep(); });
    window.addEventListener("beforeunload", (event) => { if (unsaved && !kept) event.preventDefault(); });
  }

  setUpClasses();
  setUpDuplicates();
  setUpGallery();
})();
