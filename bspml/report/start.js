
// -- everything, once -----------------------------------------------------------------------------

// On a narrow screen the first card comes before what explains it.
if (matchMedia("(min-width: 44rem)").matches) for (const panel of document.querySelectorAll("details[data-wide]")) panel.open = true;
for (const panel of document.querySelectorAll("details.panel")) panel.addEventListener("toggle", () => { if (gallery) draw(); });
setUpFlags();
setUpGallery();
setUpClasses();
setUpConfusions();
setUpDuplicates();
setUpPhotos();
setUpDecisions();
setUpLarge();
setUpMap();
takeKept();
