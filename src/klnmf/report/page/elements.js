// Building blocks. Text enters the page as text nodes only: names are never read as HTML.
const data = JSON.parse(document.getElementById("report-data").textContent);
const terms = data.terms; // what the page calls a sample, a feature and a component
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const byId = (id) => document.getElementById(id);

function withParts(element, attributes, parts) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...parts);
  return element;
}

const make = (tag, attributes = {}, ...parts) =>
  withParts(document.createElement(tag), attributes, parts);

const draw = (tag, attributes = {}, ...parts) =>
  withParts(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, parts);

const named = (text, tag = "span") => make(tag, { class: "name", dir: "auto" }, text);

// The name, with the first match of the search marked.
function marked(text, query) {
  const element = named(text);
  const lower = text.toLowerCase();
  const at = lower.indexOf(query);
  // Lower case may be longer than the text in rare scripts; then positions do not fit.
  if (query === "" || at < 0 || lower.length !== text.length) return element;
  element.replaceChildren(text.slice(0, at), make("mark", {}, text.slice(at, at + query.length)), text.slice(at + query.length));
  return element;
}

function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.01) return "< 0.01\u00a0%";
  return `${value.toFixed(value < 0.1 ? 2 : value < 10 ? 1 : 0)}\u00a0%`;
}

const count = (value) => value.toLocaleString("en", { maximumSignificantDigits: value < 1000 ? 4 : 21, maximumFractionDigits: value < 1000 ? 2 : 0 });

const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

// Calls back with the width of an element, now and when it changes.
function onWidth(element, callback) {
  let known = 0;
  const look = () => {
    const width = Math.floor(element.clientWidth);
    if (width > 0 && width !== known) callback((known = width));
  };
  new ResizeObserver(look).observe(element);
  look();
}

// Topics are the components, words the features. Each of the largest topics has a colour; the others share a few greys, which differ between
// neighbours.
const colours = [
  "#4b90d5", "#d68549", "#4ca162", "#de7a7b", "#a375c5", "#b49a2f", "#179fa5", "#d479a6", "#7b993c", "#8d92e7",
  "#a0bef5", "#f4c492", "#8bcfad", "#febbad", "#d8acdf", "#d4d291", "#79cdde", "#feb7c9", "#a4cb95", "#cec5fe",
];
const greys = ["#a9b2bd", "#8b96a4", "#c6ccd4", "#b9ada2", "#98a59d"];
const topics = data.topics;
topics.forEach((topic, rank) => {
  topic.rank = rank;
  topic.isGrey = rank >= colours.length;
  topic.colour = topic.isGrey ? greys[rank % greys.length] : colours[rank];
});
const topicOf = new Map(topics.map((topic) => [topic.id, topic]));

const fullName = (topic) => make("span", {}, `${topic.id} · `, named(topic.name));

function swatch(topic) {
  const element = make("span", { class: "swatch", "aria-hidden": "true" });
  element.style.background = topic.colour;
  return element;
}

const samples = data.samples;
// Share of a topic in a list of topics and thousandths, in turn.
function shareIn(packed, id) {
  for (let i = 0; i < packed.length; i += 2) if (packed[i] === id) return packed[i + 1] / 1000;
  return 0;
}

// Round numbers from 0 up to the largest value of an axis.
function roundSteps(largest, most) {
  const rough = largest / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough);
  const steps = [];
  for (let value = 0; value <= largest * 1.0001; value += step) steps.push(Number(value.toPrecision(6)));
  return steps;
}

// A line through the values that are known.
function curve(kind, seconds, values, x, y) {
  let path = "";
  let pen = "M";
  values.forEach((value, i) => {
    if (value === null) { pen = "M"; return; }
    path += `${pen}${x(seconds[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  return draw("path", { class: `curve ${kind}`, d: path });
}
