
// -- a picture in large: by click, by Enter on it, by v or Enter on a card; arrows go on, Esc closes ---

let seen = { boxes: [], place: 0 };

function enlarge(from) {
  const around = from.closest("[data-viewer]") ?? from;
  const boxes = [...around.querySelectorAll(".zoom:not(:disabled)")];
  if (!boxes.length) { say("no picture here"); return; }
  seen = { boxes, place: Math.max(0, boxes.indexOf(from)) };
  showLarge();
  $("large").showModal();
}

function showLarge() {
  const id = Number(seen.boxes[seen.place].dataset.sample), image = samples[id][2], whole = samples[id][5];
  const picture = $("large-picture");
  picture.alt = describe(id);
  picture.onload = () => picture.classList.toggle("tiny", picture.naturalWidth < 129);
  // Where the folder of photos is not beside the page, the small picture has to do.
  picture.onerror = () => { picture.onerror = null; picture.src = images[image]; };
  picture.src = images[whole >= 0 ? whole : image];
  $("large-caption").textContent = describe(id);
  $("large-count").textContent = seen.boxes.length > 1 ? `${seen.place + 1} of ${seen.boxes.length}` : "";
  $("large-back").hidden = $("large-on").hidden = seen.boxes.length < 2;
}

function turn(step) {
  seen.place = (seen.place + step + seen.boxes.length) % seen.boxes.length;
  showLarge();
}

function setUpLarge() {
  document.querySelector("main").addEventListener("click", (event) => {
    const box = event.target.closest(".zoom");
    if (box) enlarge(box);
  });
  $("large-back").addEventListener("click", () => turn(-1));
  $("large-on").addEventListener("click", () => turn(1));
  $("large-picture").addEventListener("click", () => $("large").close());
  $("large").addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") { turn(event.key === "ArrowRight" ? 1 : -1); event.preventDefault(); }
  });
}
