// Light or dark: what the reader chose, else what the system says. Not a module: it runs before the page is shown.

(() => {
  const NAME = "headwater-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem(NAME);
    } catch {
      return null; // a browser that keeps nothing
    }
  };
  const apply = () => {
    const theme = chosen() || (system.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    return theme;
  };
  window.headwaterTheme = {
    now: () => document.documentElement.dataset.theme,
    toggle() {
      const next = this.now() === "dark" ? "light" : "dark";
      try {
        localStorage.setItem(NAME, next);
      } catch {
        // it lasts as long as the page, then
      }
      document.documentElement.dataset.theme = next;
      return next;
    },
  };
  system.addEventListener("change", apply);
  apply();
})();
