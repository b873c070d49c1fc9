// The cards: leading words, and the most typical samples.
const FEW_WORDS = 10;
const state = { byWeight: false, expanded: new Set() };

// Places of a topic's words, best first. They come as names and tables rank them.
function rankedWords(topic) {
  const places = topic.words.map((_, i) => i);
  return state.byWeight ? places.sort((a, b) => topic.p[b] - topic.p[a]) : places;
}

// Of a word that is not among the leading ones: p(word | topic) = p(topic | word) p(word) / p(topic).
function otherWord(topic, word) {
  const ofWord = shareIn(data.word_topics[word], topic.id);
  return { word, p: topic.size > 0 ? (ofWord * Math.exp(-data.rarity[word] / 100)) / topic.size : 0, ofWord };
}

function leadingWord(topic, place) {
  return { word: topic.words[place], p: topic.p[place], ofWord: topic.of_word[place] };
}

function wordRow({ word, p, ofWord }, heaviest) {
  const isFound = word === found.word;
  const fill = make("div", { class: "fill" });
  fill.style.width = `${(100 * p) / heaviest}%`;
  return make(
    "tr",
    { class: isFound ? "found" : undefined },
    make("td", {}, named(data.words[word], isFound ? "mark" : "span")),
    make("td", { "aria-hidden": "true" }, make("div", { class: "track" }, fill)),
    make("td", { class: "number" }, percent(p)),
    make("td", { class: "number" }, percent(ofWord)),
  );
}

function sampleRows(sample, share) {
  const isFound = sample === found.sample;
  const kind = isFound ? "found" : undefined;
  const rows = [make("tr", { class: kind }, make("td", {}, named(samples.names[sample], isFound ? "mark" : "span")), make("td", { class: "number" }, percent(share)))];
  const excerpt = samples.excerpts[sample];
  if (excerpt) rows.push(make("tr", { class: "excerpt" }, make("td", { colspan: 2, dir: "auto" }, isFound ? marked(excerpt, found.query) : excerpt)));
  return rows;
}

// On a narrow screen, a card shows its words in one line until it is unfolded.
function unfold(id, open) {
  cardOf(id).classList.toggle("open", open);
  fillCard(topicOf.get(id));
}

function fillCard(topic) {
  const card = cardOf(topic.id);
  const order = rankedWords(topic);
  const expanded = state.expanded.has(topic.id);
  const shown = order.slice(0, expanded ? data.most_words : FEW_WORDS).map((place) => leadingWord(topic, place));
  const typical = topic.typical.map(([sample, share]) => [sample, share / 1000]);
  if (topic.id === chosen && found.word !== null && !shown.some(({ word }) => word === found.word)) {
    const place = topic.words.indexOf(found.word);
    shown.push(place >= 0 ? leadingWord(topic, place) : otherWord(topic, found.word));
  }
  if (topic.id === chosen && found.sample !== null && !typical.some(([sample]) => sample === found.sample)) {
    typical.push([found.sample, shareIn(samples.shares[found.sample], topic.id)]);
  }
  const heaviest = Math.max(...topic.p);
  card.querySelector(".words tbody").replaceChildren(...shown.map((word) => wordRow(word, heaviest)));
  const isOpen = card.classList.contains("open");
  const fold = card.querySelector(".fold");
  fold.replaceChildren(isOpen ? "Fold" : named(shown.map(({ word }) => data.words[word]).join(", ")));
  fold.setAttribute("aria-expanded", String(isOpen));
  const more = card.querySelector(".more");
  more.textContent = `${expanded ? "Fewer" : "More"} ${terms.feature}s`;
  more.setAttribute("aria-expanded", String(expanded));
  more.hidden = order.length <= FEW_WORDS;
  card.querySelector(".typical tbody").replaceChildren(...typical.flatMap(([sample, share]) => sampleRows(sample, share)));
}

const titles = (...cells) => make("thead", {}, make("tr", {}, ...cells.map(([text, attributes = {}]) => make("th", { scope: "col", ...attributes }, text))));

function makeCard(topic) {
  const fold = make("button", { type: "button", class: "fold" });
  fold.addEventListener("click", () => unfold(topic.id, !cardOf(topic.id).classList.contains("open")));
  const heading = make(
    "button",
    { type: "button", "aria-pressed": "false", title: `Show this ${terms.component} on the map and in the charts` },
    swatch(topic),
    fullName(topic),
    make("span", { class: "share", title: "share of all counts" }, percent(topic.size)),
  );
  heading.addEventListener("click", () => choose(chosen === topic.id ? null : topic.id));
  const more = make("button", { type: "button", class: "quiet more" });
  more.addEventListener("click", () => {
    if (!state.expanded.delete(topic.id)) state.expanded.add(topic.id);
    fillCard(topic);
  });
  const number = { class: "number" };
  const typical = topic.typical.length
    ? titles([`Most typical ${terms.sample}s`], ["share", { ...number, title: `the ${terms.component}'s share of the ${terms.sample}` }])
    : make("caption", {}, `No ${terms.sample} uses this ${terms.component}`);
  return make(
    "article",
    { class: "card", id: `topic-${topic.id}`, tabindex: "-1", "aria-label": `${capital(terms.component)} ${topic.id}: ${topic.name}` },
    make("h3", {}, heading),
    fold,
    make(
      "table",
      { class: "words" },
      titles(
        [capital(terms.feature)],
        [make("span", { class: "hidden-label" }, "bar")],
        [`of ${terms.component}`, { ...number, title: `the ${terms.feature}'s share of the ${terms.component}` }],
        [`of ${terms.feature}`, { ...number, title: `the ${terms.component}'s share of the ${terms.feature}` }],
      ),
      make("tbody"),
    ),
    more,
    make("table", { class: "typical" }, typical, make("tbody")),
  );
}

function showCards() {
  byId("cards").append(...topics.map(makeCard));
  topics.forEach(fillCard);
  byId("ranking").hidden = false;
  let last = null; // the topic whose card may show what was found
  whenChosen((id) => {
    for (const topic of topics) {
      const card = cardOf(topic.id);
      card.classList.toggle("selected", topic.id === id);
      card.querySelector("h3 button").setAttribute("aria-pressed", String(topic.id === id));
      if (topic.id === id) card.classList.add("open");
      if (topic.id === id || topic.id === last) fillCard(topic);
    }
    last = id;
  });
  const by = byId("rank-by");
  by.addEventListener("change", () => {
    state.byWeight = by.value === "weight";
    topics.forEach(fillCard);
  });
}
