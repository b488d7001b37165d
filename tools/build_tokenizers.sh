#!/usr/bin/env bash
# Builds the crate of data/tokenizers/crate as a static library, from crates that lie in a folder. Downloads nothing.
#
# Usage: build_tokenizers.sh CRATE_FOLDER CRATES_FOLDER BUILD_FOLDER ARCHIVE
# BUILD_FOLDER may be shared by several builds, also at the same time. It keeps the archive of each of the newest states of the
# crate, so that another checkout does not compile the same again. ARCHIVE is replaced as a whole.
set -euo pipefail

crate=$1 crates=$2 build=$3 archive=$4
die() { printf 'build_tokenizers: %s\n' "$*" >&2; exit 1; }

command -v cargo > /dev/null || die "no cargo: run ./dev setup, or configure with -DMUSTER_WITH_TOKENIZERS=OFF"
[ -d "$crates" ] || die "no crates in $crates: run ./dev setup, or configure with -DMUSTER_WITH_TOKENIZERS=OFF"
mkdir -p "$build" "${archive%/*}"
# cargo writes the archive of whichever checkout it builds to one place. The lock covers the copy too.
exec 9> "$build/lock"
flock 9
state=$(cat "$0" "$crate/Cargo.toml" "$crate/Cargo.lock" "$crate/src/lib.rs" <(cargo --version) | sha256sum | cut -c1-16)
kept=$build/archives/$state.a
if [ ! -f "$kept" ]; then
  # The regular expressions' library is always the one in the crate, so that the archive links the same on every machine.
  CARGO_TARGET_DIR=$build RUSTONIG_SYSTEM_LIBONIG=0 RUSTONIG_DYNAMIC_LIBONIG=0 cargo build --quiet --release --locked --offline \
    --manifest-path "$crate/Cargo.toml" \
    --config 'source.crates-io.replace-with="vendored"' --config "source.vendored.directory=\"$crates\"" >&2 ||
    die "cargo could not build $crate; if a crate is missing in $crates, run ./dev setup"
  mkdir -p "${kept%/*}"
  cp "$build/release/libmuster_tokenizers.a" "$kept.new"
  mv "$kept.new" "$kept"
  ls -t "${kept%/*}"/*.a | tail -n +4 | xargs --no-run-if-empty rm --
fi
cp "$kept" "$archive.new"
mv "$archive.new" "$archive"
