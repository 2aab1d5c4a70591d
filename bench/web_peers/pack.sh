#!/bin/sh
# Everything that the node host needs, for a GPU machine that has neither node nor a network:
#
#     bench/web_peers/pack.sh OUT
#
# writes OUT/web_peers.tar.xz and OUT/run.sh; there, `sh OUT/run.sh RECORDS.json [--sizes … --rounds … --libraries …]`
# unpacks it and runs node.js. Needs this checkout's Python with webmm, npm, node for Linux on x64, and xz.
set -eu

if [ $# -ne 1 ]; then
  echo "usage: $0 OUT" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

[ -d "$here/node_modules" ] || npm ci --prefix "$here" --ignore-scripts --no-audit --no-fund >&2

mkdir -p "$stage/bin" "$stage/peers/node_modules"
cp -L "$(command -v node)" "$stage/bin/node"
cp "$here"/*.js "$here/package.json" "$stage/peers/"
cd "$here/node_modules"
for file in \
  webgpu/package.json webgpu/index.js webgpu/dist/linux-x64/dawn.node \
  @tensorflow/tfjs-core/package.json @tensorflow/tfjs-core/dist/tf-core.min.js \
  @tensorflow/tfjs-backend-webgpu/package.json @tensorflow/tfjs-backend-webgpu/dist/tf-backend-webgpu.min.js \
  onnxruntime-web/package.json onnxruntime-web/dist/ort.webgpu.min.mjs \
  onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.mjs onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.wasm \
  @jax-js/jax/package.json @jax-js/jax/dist/*.js; do
  mkdir -p "$stage/peers/node_modules/$(dirname "$file")"
  cp -L "$file" "$stage/peers/node_modules/$file"
done

# Of the page only the module and the shaders that it would choose, in every specialisation
cd "$here"
"${PYTHON:-python3}" run.py --pack "$stage/page"

# Machines for computing may lack Vulkan's loader: Dawn then finds this one
loader=$(ldconfig -p | sed -n 's/.*libvulkan\.so\.1 .*x86-64.* => //p' | head -n 1)
if [ -n "$loader" ]; then
  mkdir -p "$stage/lib"
  cp -L "$loader" "$stage/lib/libvulkan.so.1"
fi

tar -C "$stage" -cf - . | xz -T0 >"$out/web_peers.tar.xz"

cat >"$out/run.sh" <<'RUN'
#!/bin/sh
# Usage: sh run.sh RECORDS.json [options of node.js]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
records=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if command -v xz >/dev/null; then
  tar -C "$work" -xJf "$here/web_peers.tar.xz"
else
  python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/web_peers.tar.xz" "$work"
fi
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}$work/lib"
"$work/bin/node" "$work/peers/node.js" --page "$work/page" --output "$records" "$@"
RUN
chmod +x "$out/run.sh"
ls -l "$out" >&2
