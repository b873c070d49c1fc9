// At most one topic is chosen. The cards, the map and the strips all show it.
let chosen = null;
const watchers = [];

function whenChosen(watcher) {
  watchers.push(watcher);
}

function choose(id) {
  chosen = id;
  for (const watcher of watchers) watcher(id);
}

const cardOf = (id) => byId(`topic-${id}`);

// Choose a topic and go to its card.
function visit(id) {
  if (cardOf(id).hidden) clearSearch();
  choose(id);
  const card = cardOf(id);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

function linkTo(topic, ...parts) {
  const link = make("a", { href: `#topic-${topic.id}` }, ...parts);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    visit(topic.id);
  });
  return link;
}
