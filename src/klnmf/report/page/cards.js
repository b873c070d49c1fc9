// The cards: leading words, and the most typical samples.
const FEW_WORDS = modes && data.bars.length > 1 ? 6 : 10;
const state = { byWeight: false, expanded: new Set() };

// Lists of words of a topic: of a tensor, one for each mode without an order; else the topic's own.
const listsOf = (topic) => (modes ? data.bars.map((mode) => topic.modes[mode]) : [topic]);

// Places of the words of a list, best first. They come as names and tables rank them.
function rankedWords(list) {
  const places = list.words.map((_, i) => i);
  return state.byWeight ? places.sort((a, b) => list.p[b] - list.p[a]) : places;
}

// Of a word that is not among the leading ones: p(word | topic) = p(topic | word) p(word) / p(topic).
function otherWord(topic, word) {
  const ofWord = shareIn(data.word_topics[word], topic.id);
  return { word, p: topic.size > 0 ? (ofWord * Math.exp(-data.rarity[word] / 100)) / topic.size : 0, ofWord };
}

function leadingWord(list, place) {
  return { word: list.words[place], p: list.p[place], ofWord: list.of_word[place] };
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

// Fills the table of a list of words, and returns the words that it shows.
function fillWords(topic, list, at, table, more) {
  const order = rankedWords(list);
  const expanded = state.expanded.has(`${topic.id} ${at}`);
  const shown = order.slice(0, expanded ? data.most_words : FEW_WORDS).map((place) => leadingWord(list, place));
  const isHere = topic.id === chosen && found.word !== null && (!modes || data.word_modes[found.word] === data.bars[at]);
  if (isHere && !shown.some(({ word }) => word === found.word)) {
    const place = list.words.indexOf(found.word);
    shown.push(place >= 0 ? leadingWord(list, place) : otherWord(topic, found.word));
  }
  const heaviest = Math.max(...list.p);
  table.querySelector("tbody").replaceChildren(...shown.map((word) => wordRow(word, heaviest)));
  more.textContent = `${expanded ? "Fewer" : "More"} ${terms.feature}s`;
  more.setAttribute("aria-expanded", String(expanded));
  more.hidden = order.length <= FEW_WORDS;
  return shown;
}

function fillCard(topic) {
  const card = cardOf(topic.id);
  const [tables, buttons] = [".words", ".more"].map((which) => card.querySelectorAll(which));
  const lists = listsOf(topic).map((list, at) => fillWords(topic, list, at, tables[at], buttons[at]));
  const shown = lists.at(-1) ?? [];
  const typical = topic.typical.map(([sample, share]) => [sample, share / 1000]);
  if (topic.id === chosen && found.sample !== null && !typical.some(([sample]) => sample === found.sample)) {
    typical.push([found.sample, shareIn(samples.shares[found.sample], topic.id)]);
  }
  const isOpen = card.classList.contains("open");
  const fold = card.querySelector(".fold");
  fold.replaceChildren(isOpen ? "Fold" : named(shown.map(({ word }) => data.words[word]).join(", ")));
  fold.setAttribute("aria-expanded", String(isOpen));
  card.querySelector(".typical tbody")?.replaceChildren(...typical.flatMap(([sample, share]) => sampleRows(sample, share)));
}

const titles = (...cells) => make("thead", {}, make("tr", {}, ...cells.map(([text, attributes = {}]) => make("th", { scope: "col", ...attributes }, text))));

const number = { class: "number" };

// The table of a list of words, with a button for more of them.
function makeWords(topic, at, heading) {
  const more = make("button", { type: "button", class: "quiet more" });
  more.addEventListener("click", () => {
    const key = `${topic.id} ${at}`;
    if (!state.expanded.delete(key)) state.expanded.add(key);
    fillCard(topic);
  });
  const head = titles(
    [heading],
    [make("span", { class: "hidden-label" }, "bar")],
    [`of ${terms.component}`, { ...number, title: `the ${terms.feature}'s share of the ${terms.component}` }],
    [`of ${terms.feature}`, { ...number, title: `the ${terms.component}'s share of the ${terms.feature}` }],
  );
  return [make("table", { class: "words" }, head, make("tbody")), more];
}

// The parts of a card below its heading: words and typical samples, or the modes of a tensor.
function cardParts(topic) {
  if (modes) {
    return modes.flatMap((mode, i) => (mode.is_line ? [makeCourse(mode, topic, topic.modes[i])] : makeWords(topic, data.bars.indexOf(i), capital(mode.name))));
  }
  const typical = topic.typical.length
    ? titles([`Most typical ${terms.sample}s`], ["share", { ...number, title: `the ${terms.component}'s share of the ${terms.sample}` }])
    : make("caption", {}, `No ${terms.sample} uses this ${terms.component}`);
  return [...makeWords(topic, 0, capital(terms.feature)), make("table", { class: "typical" }, typical, make("tbody"))];
}

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
  return make(
    "article",
    { class: "card", id: `topic-${topic.id}`, tabindex: "-1", "aria-label": `${capital(terms.component)} ${topic.id}: ${topic.name}` },
    make("h3", {}, heading),
    fold,
    ...cardParts(topic),
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
