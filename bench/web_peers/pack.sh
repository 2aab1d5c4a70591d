#!/bin/sh
# Pack everything that the node host needs, for a GPU machine without node and without a network:
#
#     bench/web_peers/pack.sh OUT
#
# writes OUT/packages.tar.xz (node and the libraries; kept if it exists), OUT/page.tar.xz and OUT/run.sh. On the GPU
# machine, `sh OUT/run.sh RECORDS [--only … --rounds … --libraries …]` unpacks them and runs node.js. Packing needs Python
# with this checkout's webmm, npm, node for Linux on x64, and xz.
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

packages() {
  [ -d "$here/node_modules" ] || npm ci --prefix "$here" --ignore-scripts --no-audit --no-fund >&2

  mkdir -p "$stage/bin" "$stage/peers/node_modules"
  cp -L "$(command -v node)" "$stage/bin/node"
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

  # GPU servers may lack Vulkan's loader; Dawn then finds this one
  loader=$(ldconfig -p | sed -n 's/.*libvulkan\.so\.1 .*x86-64.* => //p' | head -n 1)
  if [ -n "$loader" ]; then
    mkdir -p "$stage/lib"
    cp -L "$loader" "$stage/lib/libvulkan.so.1"
  fi
  tar -C "$stage" -cf - . | xz -T0 -9 >"$out/packages.tar.xz"
  rm -rf "${stage:?}"/*
}

[ -f "$out/packages.tar.xz" ] || packages
mkdir -p "$stage/peers"
cp -r "$here"/*.js "$here/package.json" "$here/libraries" "$stage/peers/"
cd "$here"
"${PYTHON:-python3}" run.py --host node --pack "$stage" # the page, and tasks.json
tar -C "$stage" -cf - . | xz >"$out/page.tar.xz"

cat >"$out/run.sh" <<'RUN'
#!/bin/sh
# Usage: sh run.sh RECORDS [options of node.js]. With UNPACKED=FOLDER, unpacks into FOLDER and keeps it for later runs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
records=$1
shift
work=${UNPACKED:-$(mktemp -d)}
[ -n "${UNPACKED:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$records" "$work"
if [ -x "$work/bin/node" ]; then
  : # unpacked before
elif command -v xz >/dev/null; then
  for each in packages page; do tar -C "$work" -xJf "$here/$each.tar.xz"; done
else
  unpack='import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])'
  for each in packages page; do python3 -c "$unpack" "$here/$each.tar.xz" "$work"; done
fi
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}$work/lib"
"$work/bin/node" "$work/peers/node.js" --page "$work/page" --tasks "$work/tasks.json" --output "$records" \
  --command "sh run.sh FOLDER $*" "$@"
RUN
chmod +x "$out/run.sh"
ls -l "$out" >&2
