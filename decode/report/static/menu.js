// The menu of sections closes on a choice, on a click elsewhere, and on Escape.
(() => {
  const menu = document.getElementById("menu");
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#menu summary")) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") menu.open = false;
  });
})();
