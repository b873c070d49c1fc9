// Search over the words of the model, the topics, and the samples with all that the page shows of
// them: names, labels and excerpts. Results are links.
const MOST_RESULTS = { words: 8, topics: 5, samples: 5 };

// Places of the texts that hold the query: those that begin with it first, otherwise in their order.
function matches(lowered, query) {
  const [begin, within] = [[], []];
  lowered.forEach((text, i) => {
    const at = text.indexOf(query);
    if (at >= 0) (at === 0 ? begin : within).push(i);
  });
  return [...begin, ...within];
}

function wordResult(word, query) {
  const packed = data.word_topics[word];
  const links = [];
  for (let i = 0; i < packed.length; i += 2) {
    const topic = topicOf.get(packed[i]);
    links.push(make("li", {}, linkTo(topic, { word }, swatch(topic), fullName(topic)), ` ${percent(packed[i + 1] / 1000)}`));
  }
  const mode = modes ? [make("span", { class: "hint" }, ` ${modes[data.word_modes[word]].name}`)] : [];
  return make("li", {}, make("b", {}, marked(data.words[word], query)), ...mode, make("ul", {}, ...links));
}

const topicResult = (topic, query) => make("li", {}, linkTo(topic, {}, swatch(topic), make("span", {}, `${topic.id} · `, marked(topic.name, query))));

const textsOf = (sample) => [samples.names[sample], samples.labels[sample], samples.excerpts[sample]].filter(Boolean);

// A sample is found where the page shows it: as typical of a topic, or else with its largest topic.
function sampleResult(sample, query) {
  const topic = topics.find(({ typical }) => typical.some(([other]) => other === sample)) ?? topicOf.get(samples.shares[sample][0]);
  const name = marked(samples.names[sample], query);
  const others = textsOf(sample).slice(1).filter((text) => text.toLowerCase().includes(query)).map((text) => make("div", { class: "hint" }, marked(text, query)));
  return make("li", {}, topic ? linkTo(topic, { sample, query }, name) : name, ...others);
}

function resultList(heading, hits, most, result) {
  if (hits.length === 0) return [];
  const title = hits.length > most ? `${heading}: ${count(most)} of ${count(hits.length)}` : heading;
  return [make("section", {}, make("h3", {}, title), make("ul", {}, ...hits.slice(0, most).map(result)))];
}

function startSearch() {
  const [field, results, status] = ["search", "search-results", "search-status"].map(byId);
  const inSamples = samples.names.map((_, i) => textsOf(i).join("\n"));
  const [words, names, documents] = [data.words, topics.map((topic) => topic.name), inSamples].map((texts) => texts.map((text) => text.toLowerCase()));
  const nExcerpts = Object.keys(samples.excerpts).length;
  const shown = `${plural(samples.names.length, terms.sample)} of this page (${data.labelled ? "names and labels" : "names"}${nExcerpts ? `; ${plural(nExcerpts, "excerpt")}` : ""})`;
  const listed = data.words.length < data.n_words ? `the ${count(data.words.length)} most frequent of ${plural(data.n_words, terms.feature)}` : `all ${plural(data.n_words, terms.feature)}`;

  const search = () => {
    const query = field.value.trim().toLowerCase();
    results.hidden = query === "";
    status.textContent = "";
    if (query === "") return results.replaceChildren();
    const [byWord, byTopic, bySample] = [words, names, documents].map((texts) => matches(texts, query));
    results.replaceChildren(
      ...resultList(`${capital(terms.feature)}s, with the ${terms.component}s that use them most`, byWord, MOST_RESULTS.words, (word) => wordResult(word, query)),
      ...resultList(`${capital(terms.component)}s`, byTopic, MOST_RESULTS.topics, (i) => topicResult(topics[i], query)),
      ...resultList(`${capital(terms.sample)}s`, bySample, MOST_RESULTS.samples, (i) => sampleResult(i, query)),
    );
    const found = [[byWord, terms.feature], [byTopic, terms.component], [bySample, terms.sample]].map(([hits, term]) => plural(hits.length, term));
    status.textContent = modes
      ? `${found[0]} and ${found[1]} match. Searched: ${listed}.`
      : `${found[0]}, ${found[1]} and ${found[2]} match. Searched: ${listed}, and ${shown}.`;
  };
  const clear = () => {
    field.value = "";
    search();
  };
  // Before the link is followed, because the list takes up space above its target.
  results.addEventListener("click", (event) => { if (event.target.closest("a")) clear(); }, { capture: true });
  byId("search-form").hidden = false;
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    results.querySelector("a")?.click(); // the first result
  });
  field.addEventListener("input", search);
  for (const element of [field, results]) element.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { clear(); choose(chosen); field.focus(); }
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      field.focus();
    }
  });
}
