// Starts everything.
const THEME_KEY = "klnmf-report-theme";

function startTheme() {
  const root = document.documentElement;
  const button = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem(THEME_KEY); } catch { return null; } };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  if (["light", "dark"].includes(stored())) root.dataset.theme = stored();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem(THEME_KEY, root.dataset.theme); } catch { /* the choice is kept for this visit only */ }
    show();
  });
  system.addEventListener("change", show);
  button.hidden = false;
  show();
}

function startCopying() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll(".copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(byId(button.dataset.copies).textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
}

showCards();
showMap();
showTopicTable();
if (!modes) {
  showColumns();
  showStructure();
  showSampleTable();
}
showRank();
for (const scroller of document.querySelectorAll(".scroller")) showWhatIsBelow(scroller);
startTheme();
startSearch();
startCopying();
