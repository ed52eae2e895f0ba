// The form, its address and the answers. What is computed is computed by kvplan in worker.js.
const FIELDS = ["model", "gpu", "tensor_parallel_size", "tokens", "requests", "kv_cache_dtype", "engine",
  "max_model_len", "more"];
const LISTS = {model: "models", gpu: "gpus", kv_cache_dtype: "formats", engine: "engines"};
const PAUSE_MS = 20;
const at = id => document.getElementById(id);
const worker = new Worker("worker.js", {type: "module"});
const waiting = new Map();
let last = 0, asked = 0, timer, loaded = false, config = null;

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
  if (config) words.set("config", config);
  history.replaceState(null, "", "#" + words);
}

function recall() {
  const words = new URLSearchParams(location.hash.slice(1));
  if (!words.has("model")) return false;
  config = words.get("config");
  if (config) worker.postMessage({config});
  fill(Object.fromEntries(words));
  return true;
}

function lines(into, tag, texts) {
  into.replaceChildren(...texts.map(text => {
    const one = document.createElement(tag);
    one.textContent = text;
    return one;
  }));
}

function show(found) {
  at("answer").classList.toggle("no", Boolean(found.error) || found.ok === false);
  if (found.error) {
    at("state").textContent = "No answer";
    lines(at("said"), "p", [found.error.message, ...found.error.help.map(text => "help: " + text)]);
    at("figures").replaceChildren();
    lines(at("warnings"), "li", []);
    at("command").textContent = "";
    return;
  }
  at("state").textContent = {true: "Yes", false: "No"}[found.ok] ?? "";
  lines(at("said"), "p", found.answer);
  lines(at("warnings"), "li", found.warnings);
  at("figures").innerHTML = found.html; // made by kvplan, which escapes every text where it becomes markup
  at("command").textContent = found.command;
}

async function answer() {
  if (!loaded) return;
  const mine = ++asked;
  const question = fields();
  const found = await ask("answer", question);
  if (mine !== asked) return;
  show(found);
  remember();
  document.body.dataset.answered = mine;
  const plan = await ask("plan", question);
  if (mine !== asked) return;
  at("plan").textContent = plan.plan ?? "";
  at("start").textContent = plan.start ?? "";
  document.body.dataset.planned = mine;
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(answer, PAUSE_MS);
}

async function start() {
  loaded = true;
  recall();
  await answer();
  const found = await ask("choices");
  for (const [name, list] of Object.entries(LISTS)) {
    at(list).replaceChildren(...found[name].map(value => new Option(value, value)));
  }
  at("version").textContent = found.version;
}

function whole() {
  document.body.dataset.whole = "";
  if (!at("plan").textContent) answer();
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
  fill(config ? {...fields(), ...found.fields} : {gpu: at("gpu").value, ...found.fields});
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
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copy(button.dataset.copy));
}
addEventListener("hashchange", () => { if (recall()) answer(); });
recall();
