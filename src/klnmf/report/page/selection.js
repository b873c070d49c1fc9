// At most one topic is chosen, and with it perhaps one of its words or samples, which a search for a
// text found.
// The cards, the map, the charts and the strips all show them.
let chosen = null;
let found = { word: null, sample: null, query: "" };
const watchers = [];

function whenChosen(watcher) {
  watchers.push(watcher);
}

function choose(id, { word = null, sample = null, query = "" } = {}) {
  chosen = id;
  found = { word, sample, query };
  for (const watcher of watchers) watcher(id);
}

const cardOf = (id) => byId(`topic-${id}`);

// Choose a topic, go to its card, and there to the word or sample that was found.
function visit(id, what) {
  choose(id, what);
  const card = cardOf(id);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  card.focus({ preventScroll: true });
  const line = card.querySelector(".found");
  (line ?? card).scrollIntoView({ block: line ? "center" : "start", behavior: calm ? "auto" : "smooth" });
}

function linkTo(topic, what, ...parts) {
  const link = make("a", { href: `#topic-${topic.id}` }, ...parts);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    visit(topic.id, what);
  });
  return link;
}
