// Light or dark: the system's setting until the reader chooses. Printing is light.
const theme = (() => {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const listeners = [];
  let [chosen, printing] = [null, false];

  const dark = () => !printing && (chosen ?? system.matches);
  function apply() {
    document.documentElement.dataset.theme = dark() ? "dark" : "light";
    button.setAttribute("aria-pressed", String(dark()));
    listeners.forEach((listener) => listener());
  }
  function print(now) {
    if (now === printing) return;
    printing = now;
    apply();
  }

  button.addEventListener("click", () => {
    chosen = !dark();
    apply();
  });
  system.addEventListener("change", apply);
  // Before printing, and when only the medium changes.
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
  apply();
  return {
    onChange: (listener) => listeners.push(listener),
    printing: () => printing,
    colour: (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(),
  };
})();
