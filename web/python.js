// Python as it stood when the site was built: its memory, with kvplan imported and one answer given, instead
// of starting it anew. `read` gives a file of the site as bytes, in a browser and in node.
import {loadPyodide} from "./pyodide/pyodide.mjs";
import createModule from "./pyodide/pyodide.asm.mjs";

const WASM_PAGE = 65536;

export async function started(read, indexURL) {
  const [memory, files] = await Promise.all([unpacked(read, "python/memory.gz"), unpacked(read, "python/files.gz")]);
  const python = await loadPyodide({
    indexURL, _loadSnapshot: memory, createPyodideModule: settings => createModule(roomFor(memory.length, settings)),
  });
  place(python.FS, files);
  return python;
}

async function unpacked(read, path) {
  const packed = new Blob([await read(path)]).stream();
  return new Uint8Array(await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

// A memory that had grown is put back into one of its size: Pyodide itself restores only the smallest.
function roomFor(bytes, settings) {
  const own = settings.instantiateWasm;
  settings.instantiateWasm = (imports, done) => own(imports, (instance, module) => {
    const memory = instance.exports.memory;
    const missing = Math.ceil((bytes - memory.buffer.byteLength) / WASM_PAGE);
    if (missing > 0) memory.grow(missing);
    done(instance, module);
  });
  return settings;
}

// The files that were on Python's path: four bytes of length, a list of [path, bytes], then all their bytes.
function place(FS, packed) {
  const header = new DataView(packed.buffer, packed.byteOffset).getUint32(0, true);
  const list = JSON.parse(new TextDecoder().decode(packed.subarray(4, 4 + header)));
  let at = 4 + header;
  for (const [path, length] of list) {
    FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
    FS.writeFile(path, packed.subarray(at, at + length));
    at += length;
  }
}

export async function unpackLater(python, read, files) {
  for (const file of files) python.unpackArchive(await read(file.path), file.format);
  python.runPython("import importlib; importlib.invalidate_caches()");
}
