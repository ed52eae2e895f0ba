// The form, its address and the answers. What is computed is computed by kvplan in worker.js.
const FIELDS = ["model", "gpus", "gpu", "tokens", "requests", "kv_cache_dtype", "engine", "max_model_len", "more"];
const LISTS = {model: "models", gpu: "kinds", kv_cache_dtype: "formats", engine: "engines"};
const TABS = ["size", "plan", "fits", "compare"];
const PAUSE_MS = 20, SLOW_PAUSE_MS = 400;
const at = id => document.getElementById(id);
const worker = new Worker("worker.js", {type: "module"});
const waiting = new Map();
let last = 0, asked = 0, timer, loaded = false, config = null, tab = "size";

function ask(what, ...given) {
  const id = ++last;
  return new Promise(resolve => {
    waiting.set(id, resolve);
    worker.postMessage({id, what, given: JSON.stringify(given)});
  });
}

worker.onmessage = ({data}) => {
  if (data.said !== undefined) {
    if (data.said === "ready") start();
    else if (data.said === "whole") whole();
    else at("state").textContent = data.said;
    return;
  }
  waiting.get(data.id)?.(JSON.parse(data.found));
  waiting.delete(data.id);
};
worker.onerror = () => { at("state").textContent = "This browser could not load Python."; };

function fields() {
  const found = {};
  for (const name of FIELDS) {
    const value = at(name).value.trim();
    if (value) found[name] = value;
  }
  return found;
}

function fill(found) {
  for (const name of FIELDS) at(name).value = found[name] ?? "";
  slide();
}

function slide() {
  const match = /^(\d+)(k?)$/i.exec(at("tokens").value.trim());
  if (match) at("tokens-slide").value = Math.log2(match[1] * (match[2] ? 1024 : 1));
}

function remember() {
  const words = new URLSearchParams(fields());
  if (tab !== "size") words.set("tab", tab);
  if (at("other").value.trim()) words.set("other", at("other").value.trim());
  if (config) words.set("config", config);
  history.replaceState(null, "", "#" + words);
}

function recall() {
  const words = new URLSearchParams(location.hash.slice(1));
  if (!words.has("model")) return false;
  // Links of an earlier page had the ranks of one engine in place of a number of GPUs.
  if (words.has("tensor_parallel_size") && !words.has("gpus")) words.set("gpus", words.get("tensor_parallel_size"));
  config = words.get("config");
  if (config) worker.postMessage({config});
  fill(Object.fromEntries(words));
  at("other").value = words.get("other") ?? "";
  choose(TABS.includes(words.get("tab")) ? words.get("tab") : "size");
  return true;
}

function choose(name) {
  tab = document.body.dataset.tab = name;
  at("command-name").textContent = name;
  at("main").setAttribute("aria-labelledby", "tab-" + name);
  for (const one of document.querySelectorAll("[role=tab]")) {
    one.setAttribute("aria-selected", one.dataset.tab === name);
    one.tabIndex = one.dataset.tab === name ? 0 : -1;
  }
  for (const one of document.querySelectorAll("[data-for]")) one.hidden = !one.dataset.for.split(" ").includes(name);
  clear();
}

function lines(into, tag, texts) {
  into.replaceChildren(...texts.map(text => {
    const one = document.createElement(tag);
    one.textContent = text;
    return one;
  }));
}

// Suggestions: a button where it can be asked, words where it is advice.
function ways(into, found) {
  into.replaceChildren(...found.map(({words, fields: form, requests}) => {
    const row = document.createElement("li");
    const one = document.createElement(form ? "button" : "span");
    one.textContent = requests === undefined ? words : `${words}: ${requests.toLocaleString("en")} requests`;
    if (form) {
      one.type = "button";
      one.addEventListener("click", () => { fill(form); answer(); at("answer").focus({preventScroll: true}); });
    }
    row.append(one);
    return row;
  }));
}

function clear() {
  for (const id of ["said", "screen", "command", "plan", "start"]) at(id).textContent = "";
  for (const id of ["memory", "lines", "lengths", "helps", "changes", "warnings"]) at(id).replaceChildren();
  at("buys").hidden = at("beside").hidden = at("sources").hidden = true;
}

function failed(error) {
  clear();
  at("answer").classList.add("no");
  at("state").textContent = "No answer";
  at("said").textContent = error.message;
  ways(at("helps"), error.help.map(words => ({words, fields: meant(error.code, words)})));
}

// "did you mean NAME?" of a model or a GPU is a question that can be asked.
function meant(code, words) {
  const name = /^did you mean ([^ ?,]+)/.exec(words)?.[1];
  const field = {"unknown-model": "model", "unknown-gpu": "gpu"}[code];
  return name && field ? {...fields(), [field]: name} : null;
}

function show(found) {
  clear();
  at("answer").classList.toggle("no", found.ok === false);
  at("state").textContent = found.verdict;
  at("said").textContent = found.answer;
  ways(at("helps"), found.helps);
  ways(at("changes"), found.changes);
  at("buys").hidden = !found.changes.length;
  lines(at("warnings"), "li", found.warnings);
  // Made by kvplan, which escapes every text where it becomes markup.
  at("memory").innerHTML = found.memory;
  at("lines").innerHTML = found.lines;
  at("sources").hidden = !found.lines;
  at("lengths").innerHTML = found.lengths;
  at("command").textContent = found.command;
}

function showBeside(name, found) {
  at("beside").hidden = false;
  at("beside-name").textContent = name;
  at("beside-said").textContent = found.error ? found.error.message : `${found.verdict}: ${found.answer}`;
  at("beside-memory").innerHTML = found.error ? "" : found.memory;
}

async function answer() {
  if (!loaded) return;
  const mine = ++asked;
  await (tab === "size" ? answerSize(mine) : answerScreen(mine));
}

async function answerScreen(mine) {
  if (tab === "compare" && !at("log").value.trim()) {
    at("state").textContent = "Paste what a server printed as it started: its figures are compared with kvplan's.";
    remember();
    return;
  }
  at("state").textContent = "Asking…";
  const found = await ask("screen", tab, fields(), at("log").value, columns());
  if (mine !== asked) return;
  if (found.error?.code === "still-loading") { at("state").textContent = "Loading the rest of Python…"; return; }
  if (found.error) failed(found.error);
  else {
    clear();
    at("answer").classList.toggle("no", !found.ok);
    at("state").textContent = "";
    at("screen").textContent = found.text;
    at("command").textContent = found.command;
  }
  remember();
  document.body.dataset.answered = document.body.dataset.planned = mine;
}

// As many columns as the window shows, from 60: a screen is laid out by kvplan.
const columns = () => Math.max(60, Math.min(80, Math.floor((at("answer").clientWidth - 60) / 8)));

async function answerSize(mine) {
  const question = fields();
  const found = await ask("answer", question);
  if (mine !== asked) return;
  if (found.error) failed(found.error); else show(found);
  remember();
  document.body.dataset.answered = mine;
  const other = at("other").value.trim();
  if (other && !found.error) {
    const beside = await ask("answer", {...question, gpus: "", gpu: other});
    if (mine !== asked) return;
    showBeside(other, beside);
  }
  const plan = await ask("plan", question);
  if (mine !== asked) return;
  at("plan").textContent = plan.plan ?? "";
  at("start").textContent = plan.start ?? "";
  document.body.dataset.planned = mine;
}

// The sentence and the bar as one picture: the SVG with its computed colours, drawn on a canvas.
async function save() {
  const drawn = document.querySelector("#memory svg");
  if (!drawn) { at("copied").textContent = "There is no bar to save: name a GPU."; return; }
  const copy = drawn.cloneNode(true), [, , wide, high] = drawn.getAttribute("viewBox").split(" ").map(Number);
  const own = [...drawn.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((one, place) => {
    const style = getComputedStyle(own[place]);
    for (const name of ["fill", "stroke", "stroke-dasharray", "stroke-width"]) one.style.setProperty(name, style.getPropertyValue(name));
  });
  copy.setAttribute("width", wide * 2);
  copy.setAttribute("height", high * 2);
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], {type: "image/svg+xml"}));
  await image.decode();
  URL.revokeObjectURL(image.src);
  const canvas = document.createElement("canvas"), brush = canvas.getContext("2d");
  const edge = 40, style = getComputedStyle(document.body), width = wide * 2 + 2 * edge;
  const texts = [...broken(brush, `${at("state").textContent}: ${at("said").textContent}`, "600 26px system-ui", wide * 2)];
  const legend = [...document.querySelectorAll("#memory .legend li")].map(one => one.textContent.trim().replace(/^\u200b/, ""));
  const small = [...broken(brush, legend.join("  ·  "), "20px system-ui", wide * 2)];
  canvas.width = width;
  canvas.height = 3 * edge + texts.length * 34 + high * 2 + small.length * 28 + 30;
  brush.fillStyle = style.backgroundColor;
  brush.fillRect(0, 0, canvas.width, canvas.height);
  brush.fillStyle = style.color;
  brush.font = "600 26px system-ui";
  texts.forEach((text, row) => brush.fillText(text, edge, edge + 24 + row * 34));
  const top = edge * 1.5 + texts.length * 34;
  brush.drawImage(image, edge, top);
  brush.font = "20px system-ui";
  small.forEach((text, row) => brush.fillText(text, edge, top + high * 2 + 34 + row * 28));
  brush.fillText(at("command").textContent, edge, canvas.height - 24, wide * 2);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await new Promise(done => canvas.toBlob(done, "image/png")));
  link.download = "kvplan.png";
  link.click();
  URL.revokeObjectURL(link.href);
  at("copied").textContent = "Saved as kvplan.png.";
}

function* broken(brush, text, font, wide) {
  brush.font = font;
  let row = "";
  for (const word of text.split(" ")) {
    if (row && brush.measureText(row + " " + word).width > wide) { yield row; row = ""; }
    row = row ? row + " " + word : word;
  }
  yield row;
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(answer, tab === "size" ? PAUSE_MS : SLOW_PAUSE_MS);
}

async function start() {
  loaded = true;
  recall();
  await answer();
  const found = await ask("choices");
  for (const [name, list] of Object.entries(LISTS)) {
    // A model has its size beside its name.
    at(list).replaceChildren(...found[name].map(one => Array.isArray(one) ? new Option(one[1], one[0]) : new Option(one, one)));
  }
  at("version").textContent = found.version;
}

function whole() {
  document.body.dataset.whole = "";
  if (!at("plan").textContent || tab !== "size") answer();
  // Not before: keeping every file takes from the first answer.
  if ("serviceWorker" in navigator) navigator.serviceWorker.register("sw.js").catch(() => {});
}

async function take() {
  const found = await ask("read", at("pasted").value);
  if (found.error) {
    at("notes").textContent = [found.error.message, ...found.error.help].join("; ");
    return;
  }
  config = found.config;
  if (config) worker.postMessage({config});
  fill(config ? {...fields(), ...found.fields} : {gpu: at("gpu").value, gpus: at("gpus").value, ...found.fields});
  at("notes").textContent = found.notes.join("; ");
  answer();
}

async function copy(what) {
  const text = what === "link" ? location.href : at(what).textContent;
  try {
    await navigator.clipboard.writeText(text);
    at("copied").textContent = "Copied.";
  } catch {
    at("copied").textContent = "This browser does not let a page copy: mark the text.";
  }
}

at("form").addEventListener("input", event => {
  if (event.target.id === "tokens-slide") {
    const tokens = Math.round(2 ** event.target.value / 1024);
    at("tokens").value = tokens + "k";
  } else slide();
  later();
});
at("form").addEventListener("submit", event => { event.preventDefault(); answer(); });
at("take").addEventListener("click", take);
at("save").addEventListener("click", save);
for (const one of document.querySelectorAll("[role=tab]")) {
  one.addEventListener("click", () => { choose(one.dataset.tab); answer(); });
  one.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const next = at("tab-" + TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length]);
    next.focus();
    next.click();
  });
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copy(button.dataset.copy));
}
addEventListener("hashchange", () => { if (recall()) answer(); });
if (!recall()) choose(tab);
