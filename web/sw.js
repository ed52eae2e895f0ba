// Every file of the page, kept at the first visit: afterwards it answers without a network.
// The list and the version are written by scripts/make_site.py.
const VERSION = "@VERSION@";
const FILES = ["@FILES@"];

addEventListener("install", event => {
  event.waitUntil(caches.open(VERSION).then(cache => cache.addAll(FILES)).then(() => skipWaiting()));
});

addEventListener("activate", event => {
  event.waitUntil(caches.keys()
    .then(names => Promise.all(names.filter(name => name !== VERSION).map(name => caches.delete(name))))
    .then(() => clients.claim()));
});

addEventListener("fetch", event => {
  const {request} = event;
  if (request.method !== "GET" || new URL(request.url).origin !== location.origin) return;
  event.respondWith(caches.match(request, {ignoreSearch: true}).then(found => found ?? fetch(request)));
});
