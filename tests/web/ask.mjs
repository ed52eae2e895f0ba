// Questions on standard input, answers on standard output, a line each: the site's own Python, as the page
// starts it.
import fs from "node:fs";
import path from "node:path";
import {pathToFileURL} from "node:url";

const site = path.resolve(process.argv[2]);
const {started, unpackLater} = await import(pathToFileURL(path.join(site, "python.js")));
const read = async name => new Uint8Array(fs.readFileSync(path.join(site, name)));
const python = await started(read, path.join(site, "pyodide") + path.sep);
await unpackLater(python, read, JSON.parse(fs.readFileSync(path.join(site, "files.json"))));
const answered = python.runPython("from kvplan.cli.web import answered; answered");
for (const line of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const {what, given} = JSON.parse(line);
  process.stdout.write(answered(what, given) + "\n");
}
