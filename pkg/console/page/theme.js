// The theme is set before anything is painted. It is one of these; auto is what the system says.
"use strict";
const themes = ["auto", "light", "dark"];

function kept() {
  try {
    const theme = localStorage.getItem("theme");
    return themes.includes(theme) ? theme : "auto";
  } catch {
    return "auto"; // the browser keeps nothing
  }
}

function show(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  if (button) {
    button.textContent = `Theme: ${theme}`;
  }
}

show(kept());
document.addEventListener("DOMContentLoaded", () => {
  show(kept());
  document.getElementById("theme").addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
    try {
      localStorage.setItem("theme", next);
    } catch {
      // it lasts until the page is left
    }
    show(next);
  });
});
