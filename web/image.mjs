// Run by scripts/make_site.py: starts Python once, imports kvplan, answers once with every engine and kind of model
// (so that no later answer waits for an import), and keeps the memory and the files.
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
from kvplan.architectures.lineages import lineages
from kvplan.cli.web import answered
from kvplan.engines import ENGINES
lineages()
form = {"model": "qwen3-32b", "gpu": "h200-sxm-141gb", "tokens": "32k"}
for other in (
    *({"engine": name} for name in ENGINES), {"tokens": "x"}, {"model": "gpt-oss-120b"}, {"model": "gemma-3-27b"},
    {"model": "deepseek-v3", "tensor_parallel_size": "8"}, {"model": "qwen3-next-80b-a3b"}, {"kv_cache_dtype": "fp8"}, {},
):
    last = answered("answer", json.dumps([form | other]))
assert "answer" in json.loads(last), last
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
