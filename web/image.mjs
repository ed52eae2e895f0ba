// Run by scripts/make_site.py: starts Python once, imports kvplan, answers, and keeps the memory and the files.
//     node web/image.mjs SITE WHEEL YAML
import fs from "node:fs";
import path from "node:path";
import {pathToFileURL} from "node:url";
import zlib from "node:zlib";

const [site, ...archives] = process.argv.slice(2).map(name => path.resolve(name));
const {loadPyodide} = await import(pathToFileURL(path.join(site, "pyodide", "pyodide.mjs")));
const python = await loadPyodide({indexURL: path.join(site, "pyodide") + path.sep, _makeSnapshot: true});
for (const archive of archives) {
  python.unpackArchive(new Uint8Array(fs.readFileSync(archive)), archive.endsWith(".whl") ? "wheel" : "zip");
}
python.runPython(`
import os, json, gc
os.environ["KVPLAN_CONFIG"] = ""
from kvplan.cli.web import answered
for fields in ({"model": "llama-3.1-8b", "gpu": "h100", "tokens": "8k"}, {"model": "llama-3.1-8b", "tokens": "x"}):
    answered("answer", json.dumps([fields]))
answered("choices", "[]")
gc.collect()
`);
const keep = (name, bytes) => fs.writeFileSync(path.join(site, "python", name), zlib.gzipSync(bytes, {level: 9}));
keep("memory.gz", python.makeMemorySnapshot());

const list = [], bodies = [];
function gather(folder) {
  for (const name of python.FS.readdir(folder).filter(name => ![".", "..", "__pycache__"].includes(name)).sort()) {
    const full = folder + "/" + name;
    if (python.FS.isDir(python.FS.stat(full).mode)) { gather(full); continue; }
    const body = python.FS.readFile(full);
    list.push([full, body.length]);
    bodies.push(body);
  }
}
gather(python.FS.cwd());
const header = Buffer.from(JSON.stringify(list)), length = Buffer.alloc(4);
length.writeUInt32LE(header.length);
keep("files.gz", Buffer.concat([length, header, ...bodies]));
