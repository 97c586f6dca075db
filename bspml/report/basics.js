// The page's data, and how texts, numbers and samples are shown.
const data = JSON.parse(document.getElementById("data").textContent);
const { labels, images, samples, suspects, classes, duplicates, confusions, photos } = data;
const $ = (id) => document.getElementById(id);
// What would be invisible, turn the text around or be no character at all shows as a dot.
// Joiners stay: scripts and emoji need them.
const UNSEEN = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]|(?![\u200c\u200d])\p{Cf}/gu;
const show = (text) => text.replace(/\r\n?|\n/g, "⏎").replace(UNSEEN, "·") || "(empty)";
const shown = labels.map(show);
const number = (value, digits = 3) =>
  value === null ? "–" : value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits
    ? value.toExponential(0) : value.toFixed(digits);
const percent = (value) => (value === null ? "–" : value >= 0.995 && value < 1 ? "over 99 %" : `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`);
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

// -- one sample: its picture, its words, or at least its number --------------------------------

const indexAt = (id) => samples[id][0];
const labelAt = (id) => samples[id][1];
const nameAt = (id) => samples[id][4];
const pictureAt = (id) => samples[id][6];
const describe = (id) => `#${indexAt(id)}, labelled ${shown[labelAt(id)]}${nameAt(id) && `, ${show(nameAt(id))}`}`;
const clean = (text) => text.replace(UNSEEN, (c) => (c === "\n" || c === "\t" ? c : "·"));

// A picture is a button that enlarges it; `reached` by Tab, or only from the picture before it.
function shot(id, reached = true) {
  const [index, , image, text] = samples[id], title = describe(id);
  const nothing = (why) => h("span", { class: "none" }, `#${index}`, h("br"), why);
  if (image < 0) {
    if (text === null) return h("div", { class: "shot", title }, nothing(""));
    return h("div", { class: "shot", title }, h("div", { class: "words", dir: "auto" }, clean(text)));
  }
  const picture = h("img", { loading: "lazy", decoding: "async", alt: title });
  const box = h("button", {
    type: "button", class: "shot zoom", title, "data-sample": id, tabindex: reached ? null : -1, "aria-label": `Enlarge ${title}`,
  }, picture);
  picture.addEventListener("load", () => picture.classList.toggle("tiny", picture.naturalWidth < 65));
  picture.addEventListener("error", () => { box.disabled = true; box.replaceChildren(nothing("image not found")); });
  picture.src = images[image];
  return box;
}

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

const collator = new Intl.Collator("en", { numeric: true });
const byLabel = (a, b) => collator.compare(shown[a], shown[b]);
