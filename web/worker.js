// Python in a thread of its own: first what an answer needs, then what writes plans and reads commands.
import {loadPyodide} from "./pyodide/pyodide.mjs";

const say = said => postMessage({said});
let answered;
const early = [];

async function unpack(python, files) {
  for (const file of files) {
    const found = await fetch(file.path);
    if (!found.ok) throw new Error(file.path);
    python.unpackArchive(await found.arrayBuffer(), file.format);
  }
}

async function load() {
  say("Loading Python…");
  const [python, files] = await Promise.all([
    loadPyodide({indexURL: new URL("pyodide/", location.href).href}),
    fetch("files.json").then(found => found.json()),
  ]);
  say("Loading kvplan…");
  await unpack(python, files.first);
  python.runPython("import os; os.environ['KVPLAN_CONFIG'] = ''\nfrom kvplan.cli.web import answered");
  answered = python.globals.get("answered");
  const config = text => python.FS.writeFile("config.json", text);
  onmessage = ({data}) => take(data, config);
  say("ready");
  early.splice(0).forEach(data => take(data, config));
  await unpack(python, files.then);
  python.runPython("import importlib; importlib.invalidate_caches()");
  say("whole");
}

function take(data, config) {
  if (data.config !== undefined) config(data.config);
  else postMessage({id: data.id, found: answered(data.what, data.given)});
}

onmessage = ({data}) => early.push(data);
load().catch(error => say("Python could not be loaded: " + error.message));
