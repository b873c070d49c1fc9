// Starts everything: theme, search, copy buttons.
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

showConvergence();
showRank();
showCards();
const markMap = showMap();
showStructure();
const filterTopics = showTopicTable();
const filterSamples = showSampleTable();

function search(text) {
  state.query = text.trim().toLowerCase();
  topics.forEach(fillCard);
  markMap();
  const found = filterTopics((topic) => !cardOf(topic.id).hidden);
  const listed = filterSamples((i) => state.query === "" || contains(samples.names[i]) || (data.labelled && contains(samples.labels[i])));
  byId("search-status").textContent = state.query === "" ? "" :
    `${plural(found, "topic")} and ${plural(listed, "document")} match “${text.trim()}”. This page holds ${plural(data.words.length, "word")} and ${plural(samples.names.length, "document")}.`;
}

function clearSearch() {
  byId("search").value = "";
  search("");
}

function startSearch() {
  const field = byId("search");
  byId("search-form").hidden = false;
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    byId("ranking").scrollIntoView(); // to what was found
  });
  field.addEventListener("input", () => search(field.value));
  field.addEventListener("keydown", (event) => { if (event.key === "Escape") clearSearch(); });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      field.focus();
    }
  });
}

startTheme();
startSearch();
startCopying();
