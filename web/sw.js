// Keeps the page working without a network: its own files are fetched afresh while there is one, and what was seen
// last is used while there is none. Shaders are named after their content, so a kept one is never out of date.
const CACHE = "webmm";
const SHELL = [
  "./", "style.css", "icon.svg", "manifest.webmanifest", "main.js", "dom.js", "charts.js", "webmm.js", "errors.js",
  "matrix.js", "check.js", "bench.js", "records.js", "prepared.js", "panels/ladder.js", "panels/multiply.js",
  "panels/explain.js", "panels/tune.js", "panels/compare.js", "panels/help.js", "bundle/index.json",
  "bundle/prepared.json",
];

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(SHELL)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== self.location.origin) return;
  event.respondWith(url.pathname.endsWith(".wgsl") ? keptFirst(event.request) : freshFirst(event.request));
});

async function keptFirst(request) {
  return (await caches.match(request)) ?? fetchAndKeep(request);
}

async function freshFirst(request) {
  try {
    return await fetchAndKeep(request);
  } catch (error) {
    const kept = await caches.match(request, { ignoreSearch: true });
    if (kept) return kept;
    throw error;
  }
}

async function fetchAndKeep(request) {
  const response = await fetch(request);
  if (response.ok) {
    const cache = await caches.open(CACHE);
    await cache.put(request, response.clone());
  }
  return response;
}
