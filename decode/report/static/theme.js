// Light and dark: as the system says, until the reader says otherwise. Paper is light.
const theme = (() => {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  const listeners = [];
  let chosen = null;

  const dark = () => !paper.matches && (chosen ?? system.matches);
  function apply() {
    document.documentElement.dataset.theme = dark() ? "dark" : "light";
    button.setAttribute("aria-pressed", String(dark()));
    listeners.forEach((listener) => listener(paper.matches));
  }

  button.addEventListener("click", () => {
    chosen = !dark();
    apply();
  });
  system.addEventListener("change", apply);
  paper.addEventListener("change", apply);
  apply();
  return {
    onChange: (listener) => listeners.push(listener),
    colour: (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(),
  };
})();
