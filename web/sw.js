// Lets the page work offline: its files are fetched from the network, and from the cache if that fails. Shader templates are
// cached once they have been used.
//
// Nothing else of the origin is cached, and on loopback nothing at all: another program may use the same port later, and
// must not be served this page's files.
const LOOPBACK = /^(.+\.)?localhost$|^127(\.\d+){3}$|^\[::1\]$/; // as in main.js
const SCOPE = self.registration.scope;
const CACHE = `webmm ${SCOPE}`; // all pages of an origin share their caches
const OLD_CACHE = "webmm"; // the cache of earlier versions
const SHELL = ["./"]; // `webmm bundle` adds every other file of the page that is not LAZY
const FILES = new Set(SHELL.map((name) => new URL(name, SCOPE).href));
const LAZY = /^bundle\/(templates\/[\w/]+\.js|models\/[\w-]+\.json|(translated|learn)\/[\w/-]+\.deflate)$/; // cached once used
const isLazy = (file) => file.startsWith(SCOPE) && LAZY.test(file.slice(SCOPE.length));

if (LOOPBACK.test(self.location.hostname)) {
  self.addEventListener("install", () => self.skipWaiting());
  self.addEventListener("activate", (event) => event.waitUntil(leave()));
} else {
  self.addEventListener("install", (event) => event.waitUntil(keepAll([...FILES]).then(() => self.skipWaiting())));
  const takeOver = () => caches.delete(OLD_CACHE).then(() => self.clients.claim());
  self.addEventListener("activate", (event) => event.waitUntil(takeOver()));
  self.addEventListener("message", (event) => event.waitUntil(keepLoaded(event)));
  self.addEventListener("fetch", (event) => {
    const { origin, pathname } = new URL(event.request.url);
    const file = origin + pathname;
    if (event.request.method !== "GET" || !(FILES.has(file) || isLazy(file))) return;
    event.respondWith(freshFirst(event, file));
  });
}

async function leave() {
  await Promise.all([CACHE, OLD_CACHE].map((name) => caches.delete(name)));
  await self.registration.unregister();
}

// The page sends the templates that it loaded before this worker was active, and gets a message when they are cached.
async function keepLoaded({ data, source }) {
  await keepAll(data.map((path) => new URL(path, SCOPE).href).filter(isLazy));
  source.postMessage("kept");
}

async function freshFirst(event, file) {
  try {
    const response = await fetch(event.request);
    if (new URL(event.request.url).search === "") event.waitUntil(keep(file, response.clone()));
    return response;
  } catch (error) {
    const last = await (await caches.open(CACHE)).match(file);
    if (last) return last;
    throw error;
  }
}

async function keepAll(files) {
  const responses = await Promise.all(files.map((file) => fetch(file)));
  const missing = responses.find((response) => !response.ok);
  if (missing) throw new Error(`${missing.url}: ${missing.status}`);
  await Promise.all(files.map((file, i) => keep(file, responses[i])));
}

async function keep(file, response) {
  const secret = /no-store/i.test(response.headers.get("Cache-Control") ?? "");
  if (response.ok && !response.redirected && !secret) await (await caches.open(CACHE)).put(file, response);
}
