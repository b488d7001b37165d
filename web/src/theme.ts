// Light or dark. The system decides until a person chooses. The style sheet reads html[data-theme].
const KEY = "muster-theme";
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

export const theme = (): string => localStorage.getItem(KEY) ?? (systemIsDark.matches ? "dark" : "light");

function apply(): void {
  document.documentElement.dataset["theme"] = theme();
  dispatchEvent(new Event("themechange"));
}

export function toggleTheme(): void {
  localStorage.setItem(KEY, theme() === "dark" ? "light" : "dark");
  apply();
}

apply();
systemIsDark.addEventListener("change", apply);
