// What the theme leaves out for those who read with a keyboard or a screen reader.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
addEventListener("load", () => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .highlight code, pre > code")) box.tabIndex = 0;
});
