// The cards: words by relevance, and the most typical documents.
const FEW_WORDS = 10;
const MOST_FOUND = 5;
const state = { weight: data.weights.first, query: "", expanded: new Set() };

// Places of a topic's words, most relevant first. The words come heaviest first and the sort is
// stable, so of equal words the heavier one leads, as in the Python code that chose them.
function rankedWords(topic, weight) {
  const relevance = topic.log_p.map((p, i) => weight * p + (1 - weight) * topic.log_lift[i]);
  return topic.words.map((_, i) => i).sort((a, b) => relevance[b] - relevance[a]);
}

const contains = (text) => state.query !== "" && text.toLowerCase().includes(state.query);

function wordRow(topic, place, heaviest, found) {
  const p = Math.exp(topic.log_p[place]);
  const ofWord = Math.min(1, topic.size * Math.exp(topic.log_lift[place]));
  const fill = make("div", { class: "fill" });
  fill.style.width = `${(100 * p) / heaviest}%`;
  return make(
    "li",
    { class: found ? "found" : undefined },
    marked(data.words[topic.words[place]], state.query),
    make("div", { class: "track", "aria-hidden": "true" }, fill),
    make("span", { class: "number", title: "the word's share of the topic" }, percent(p)),
    make("span", { class: "number", title: "the topic's share of the word" }, percent(ofWord)),
  );
}

function sampleRow(sample, share) {
  const row = make("li", {}, marked(samples.names[sample], state.query), make("span", { class: "number" }, percent(share)));
  const excerpt = samples.excerpts[sample];
  if (excerpt) row.append(make("p", { class: "excerpt", dir: "auto" }, excerpt));
  return row;
}

// Samples whose name matches the search and whose largest topic this is, without the typical ones.
function foundSamples(topic) {
  if (!state.query) return [];
  const shown = new Set(topic.typical.map(([sample]) => sample));
  const found = [];
  for (let i = 0; i < samples.names.length && found.length < MOST_FOUND; i++) {
    if (samples.shares[i][0] === topic.id && !shown.has(i) && contains(samples.names[i])) found.push(i);
  }
  return found;
}

function fillCard(topic) {
  const card = cardOf(topic.id);
  const order = rankedWords(topic, state.weight);
  const expanded = state.expanded.has(topic.id);
  const shown = order.slice(0, expanded ? data.most_words : FEW_WORDS);
  const hits = order.filter((place) => contains(data.words[topic.words[place]]));
  const extra = hits.filter((place) => !shown.includes(place)).slice(0, MOST_FOUND);
  const heaviest = Math.exp(Math.max(...topic.log_p));
  card.querySelector(".words").replaceChildren(
    ...shown.map((place) => wordRow(topic, place, heaviest, false)),
    ...extra.map((place) => wordRow(topic, place, heaviest, true)),
  );
  const more = card.querySelector(".more");
  more.textContent = expanded ? "Fewer words" : "More words";
  more.setAttribute("aria-expanded", String(expanded));
  more.hidden = order.length <= FEW_WORDS;
  const found = foundSamples(topic);
  card.querySelector(".typical").replaceChildren(
    ...topic.typical.map(([sample, share]) => sampleRow(sample, share / 1000)),
    ...found.map((sample) => sampleRow(sample, shareOf(sample, topic.id))),
  );
  const named = topic.typical.some(([sample]) => contains(samples.names[sample]));
  card.hidden = state.query !== "" && hits.length === 0 && found.length === 0 && !named;
}

function makeCard(topic) {
  const heading = make(
    "button",
    { type: "button", "aria-pressed": "false", title: "Show this topic on the map and in the documents" },
    swatch(topic),
    make("span", {}, `${topic.id} · `, named(topic.name)),
    make("span", { class: "share" }, percent(topic.size)),
  );
  heading.addEventListener("click", () => choose(chosen === topic.id ? null : topic.id));
  const more = make("button", { type: "button", class: "quiet more" });
  more.addEventListener("click", () => {
    if (!state.expanded.delete(topic.id)) state.expanded.add(topic.id);
    fillCard(topic);
  });
  return make(
    "article",
    { class: "card", id: `topic-${topic.id}`, tabindex: "-1", "aria-label": `Topic ${topic.id}: ${topic.name}` },
    make("h3", {}, heading),
    make("ol", { class: "words", "aria-label": "Words" }),
    more,
    make("h4", {}, topic.typical.length ? "Most typical documents" : "No document uses this topic"),
    make("ul", { class: "typical", "aria-label": "Most typical documents" }),
  );
}

function showCards() {
  byId("cards").append(...topics.map(makeCard));
  topics.forEach(fillCard);
  byId("ranking").hidden = false;
  whenChosen((id) => {
    for (const topic of topics) {
      const card = cardOf(topic.id);
      card.classList.toggle("selected", topic.id === id);
      card.querySelector("h3 button").setAttribute("aria-pressed", String(topic.id === id));
    }
  });
  const slider = byId("relevance");
  slider.addEventListener("input", () => {
    state.weight = Math.round(Number(slider.value) * data.weights.steps) / data.weights.steps;
    byId("relevance-value").textContent = `λ = ${state.weight.toFixed(2)}`;
    topics.forEach(fillCard);
  });
}
