// Python in a thread of its own: first what an answer needs, then what writes plans and reads commands.
import {started, unpackLater} from "./python.js";

const say = said => postMessage({said});
let answered;
const early = [];

async function read(path) {
  const found = await fetch(path);
  if (!found.ok) throw new Error(path);
  return found.arrayBuffer();
}

async function load() {
  say("Loading Python…");
  const python = await started(read, new URL("pyodide/", location.href).href);
  answered = python.runPython("from kvplan.cli.web import answered; answered");
  const config = text => python.FS.writeFile("config.json", text);
  onmessage = ({data}) => take(data, config);
  say("ready");
  early.splice(0).forEach(data => take(data, config));
  await unpackLater(python, read, await fetch("files.json").then(found => found.json()));
  say("whole");
}

function take(data, config) {
  if (data.config !== undefined) config(data.config);
  else postMessage({id: data.id, found: answered(data.what, data.given)});
}

onmessage = ({data}) => early.push(data);
load().catch(error => say("Python could not be loaded: " + error.message));
