
// -- which suspects count as flagged: the audit's choice, or a person's ---------------------------

// Suspects come most suspicious first; without chances there is nothing to choose by.
const canFlag = suspects.some((suspect) => suspect.chance !== null);
const flags = { rule: "audit", count: 0, precision: 0.9 };
let flagged = new Set(); // sample indices
const isFlagged = (index) => flagged.has(index);

// The longest part from the most suspicious on whose labels are wrong with this share or more.
function countAt(precision) {
  let wrong = 0, longest = 0;
  suspects.forEach((suspect, i) => {
    wrong += suspect.chance ?? 0; // not known: not counted on
    if (wrong >= precision * (i + 1) - 1e-9) longest = i + 1;
  });
  return longest;
}

function chosen() {
  if (flags.rule === "audit") return suspects.filter((suspect) => suspect.weight === 0);
  return suspects.slice(0, flags.rule === "count" ? flags.count : countAt(flags.precision));
}

function flag() {
  const found = chosen(), known = found.filter((suspect) => suspect.chance !== null);
  flagged = new Set(found.map((suspect) => indexAt(suspect.sample)));
  const wrong = known.reduce((sum, suspect) => sum + suspect.chance, 0);
  const about = (value) => (value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en"));
  const unknown = found.length - known.length;
  $("flag-summary").textContent = found.length
    ? `${many(found.length, "label")} flagged: about ${about(wrong)} expected to be wrong, about ${about(known.length - wrong)} right${unknown ? `; ${unknown.toLocaleString("en")} not known` : ""}.`
    : "No label is flagged.";
  $("suspects-count").textContent = `${found.length.toLocaleString("en")} flagged of ${suspects.length.toLocaleString("en")}`;
  $("flag-count-field").hidden = flags.rule !== "count";
  $("flag-precision-field").hidden = flags.rule !== "precision";
}

function setUpFlags() {
  if (!canFlag) return;
  $("flags").hidden = false;
  for (const [value, text] of [["flagged", "flagged"], ["unflagged", "not flagged"]]) $("state").append(h("option", { value }, text));
  $("sort").append(h("option", { value: "chance" }, "chance to be wrong"));
  flags.count = chosen().length;
  try { Object.assign(flags, JSON.parse(storage?.getItem(`${data.key}-flags`) ?? "{}")); } catch { /* not ours */ }
  $("flag-rule").value = flags.rule;
  $("flag-count").value = flags.count;
  $("flag-precision").value = Math.round(100 * flags.precision);
  const bounded = (input, low, high) => Math.min(high, Math.max(low, Math.round(Number(input.value) || 0)));
  $("flags").addEventListener("input", () => {
    flags.rule = $("flag-rule").value;
    flags.count = bounded($("flag-count"), 0, suspects.length);
    flags.precision = bounded($("flag-precision"), 0, 100) / 100;
    try { storage?.setItem(`${data.key}-flags`, JSON.stringify(flags)); } catch { /* full: until the page closes */ }
    flag();
    keep(); // the decisions name the flags
    for (const card of cards.values()) showFlag(card);
    for (const follow of onNarrow) follow();
    if (filter.state === "flagged" || filter.state === "unflagged") refresh();
  });
  flag();
}
