// Questions on standard input, answers on standard output, a line each: the site's own wheels in Pyodide.
import fs from "node:fs";
import path from "node:path";
import {pathToFileURL} from "node:url";

const site = path.resolve(process.argv[2]);
const {loadPyodide} = await import(pathToFileURL(path.join(site, "pyodide", "pyodide.mjs")));
const python = await loadPyodide({indexURL: path.join(site, "pyodide") + path.sep});
const files = JSON.parse(fs.readFileSync(path.join(site, "files.json")));
for (const file of [...files.first, ...files.then]) {
  python.unpackArchive(new Uint8Array(fs.readFileSync(path.join(site, file.path))), file.format);
}
python.runPython("import os; os.environ['KVPLAN_CONFIG'] = ''\nfrom kvplan.cli.web import answered");
const answered = python.globals.get("answered");
for (const line of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const {what, given} = JSON.parse(line);
  process.stdout.write(answered(what, given) + "\n");
}
