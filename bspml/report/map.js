
// -- the map: every sample a point; a suspect has a ring -------------------------------------------

function setUpMap() {
  const canvas = $("map-canvas"), map = data.map;
  if (!canvas) return;
  const context = canvas.getContext("2d"), tip = $("map-tip");
  const ringed = new Map(suspects.map((suspect) => [indexAt(suspect.sample), suspect]));
  const order = map.index.map((_, i) => i).sort((a, b) => ringed.has(map.index[a]) - ringed.has(map.index[b]) || a - b);
  const most = (values) => values.reduce((a, b) => Math.max(a, b), 1);
  const widest = most(map.x), tallest = most(map.y);
  // Turns of the colour wheel that never meet again: neighbours in the list differ most.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (label, alpha) => `hsl(${(label * 137.508) % 360} 65% ${dark.matches ? 62 : 45}% / ${alpha})`;
  let scale = 1, left = 0, top = 0, ratio = 1, near = -1, pinned = -1;
  const place = (i) => [left + scale * map.x[i], top + scale * (tallest - map.y[i])];

  function layOut() {
    const box = canvas.getBoundingClientRect(), edge = 14;
    if (!box.width) return false;
    ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(box.width * ratio);
    canvas.height = Math.round(box.height * ratio);
    scale = Math.min((box.width - 2 * edge) / widest, (box.height - 2 * edge) / tallest);
    left = (box.width - scale * widest) / 2;
    top = (box.height - scale * tallest) / 2;
    return true;
  }

  const stands = (i) => {
    const label = map.label[i], other = map.suggested[i];
    if (filter.pair) return label === filter.pair[0] || label === filter.pair[1];
    if (filter.exact !== null) return label === filter.exact || other === filter.exact;
    return !filter.text || lower[label].includes(filter.text);
  };
  const shownPoint = (i) => !$("map-only").checked || ringed.has(map.index[i]);

  function drawMap() {
    if (!layOut()) return;
    const style = getComputedStyle(document.body), ink = style.getPropertyValue("--ink").trim();
    const size = map.index.length > 5000 ? 1.6 : map.index.length > 800 ? 2.4 : 3.4;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    for (const i of order) {
      if (!shownPoint(i)) continue;
      const [x, y] = place(i), on = stands(i), ring = ringed.has(map.index[i]);
      context.fillStyle = on ? colour(map.label[i], 0.75) : "rgb(128 128 128 / 0.18)";
      context.beginPath();
      context.arc(x, y, size, 0, 7);
      context.fill();
      if (ring && on) {
        const suspect = ringed.get(map.index[i]);
        context.strokeStyle = ink;
        context.globalAlpha = (canFlag ? isFlagged(map.index[i]) : suspect.weight === 0) ? 1 : 0.3;
        context.lineWidth = map.index.length > 5000 ? 0.8 : 1.2;
        context.beginPath();
        context.arc(x, y, size + 2.2, 0, 7);
        context.stroke();
        context.globalAlpha = 1;
      }
    }
    if (near >= 0) {
      const [x, y] = place(near);
      context.strokeStyle = style.getPropertyValue("--accent").trim();
      context.lineWidth = 2.5;
      context.beginPath();
      context.arc(x, y, size + 5, 0, 7);
      context.stroke();
    }
  }

  // The nearest point that is shown, a suspect rather than another, within a finger's reach.
  function pick(event, reach) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, least = reach * reach;
    for (const i of order) {
      if (!shownPoint(i) || !stands(i)) continue;
      const [px, py] = place(i);
      const distance = ((px - x) ** 2 + (py - y) ** 2) * (ringed.has(map.index[i]) ? 0.4 : 1);
      if (distance < least) { least = distance; best = i; }
    }
    return best;
  }

  function tell(i) {
    if (i === near) return;
    near = i;
    tip.hidden = i < 0;
    if (i >= 0) {
      const suspect = ringed.get(map.index[i]), other = map.suggested[i];
      const lines = [h("strong", {}, isolated(shown[map.label[i]]))];
      if (other >= 0) lines.push(h("span", {}, "looks like ", isolated(shown[other])));
      if (map.name.length && map.name[i]) lines.push(h("span", { class: "quiet" }, isolated(show(map.name[i]))));
      lines.push(h("span", { class: "quiet" }, `#${map.index[i]}${suspect ? " · choose it again for its card" : ""}`));
      const image = suspect ? samples[suspect.sample][2] : -1;
      if (image >= 0) lines.unshift(h("img", { src: images[image], alt: "" }));
      tip.replaceChildren(...lines);
      const [x, y] = place(i), width = canvas.clientWidth;
      tip.style.left = `${Math.min(Math.max(0, x + 12), Math.max(0, width - 200))}px`;
      tip.style.top = `${y + 14}px`;
    }
    requestAnimationFrame(drawMap);
  }

  canvas.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") tell(pick(event, 14)); });
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") tell(-1); });
  canvas.addEventListener("click", (event) => {
    const touched = event.pointerType === "touch" || event.pointerType === "pen";
    const i = pick(event, touched ? 24 : 14), again = i === pinned || !touched;
    tell(i);
    pinned = i;
    if (i < 0 || !again) return;
    if (!ringed.has(map.index[i])) say(`#${map.index[i]} is no suspect: it has no card`);
    else if (!focusSample(map.index[i])) {
      Object.assign(filter, { state: "" });
      $("state").value = "";
      narrow({}, "");
      focusSample(map.index[i]);
    }
  });
  $("map-only").addEventListener("change", drawMap);
  $("map").addEventListener("toggle", drawMap);
  window.addEventListener("resize", drawMap);
  dark.addEventListener("change", drawMap);
  onNarrow.push(drawMap);
  drawMap();
}
