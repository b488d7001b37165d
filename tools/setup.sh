# Installs what is missing. ./dev sources this file and defines say, die and assume_yes.
# Does nothing, in a fraction of a second, when everything is installed.

deps_folder=${MUSTER_DEPS_FOLDER:-$PWD/.deps}
libtorch_versions=tools/deps/libtorch-versions.txt
cuda_list=${MUSTER_CUDA_LIST:-tools/deps/cuda.txt}
cuda_folder="$deps_folder/cuda"
nvcc_list=${MUSTER_NVCC_LIST:-tools/deps/nvcc.txt}
nvcc_folder="$deps_folder/nvcc"
peers_list=${MUSTER_PEERS_LIST:-tools/deps/peers.txt}
peers_folder="$deps_folder/peers"
# Beside a list of somebody's own there is no second one.
newest_peers_list=${MUSTER_NEWEST_PEERS_LIST:-${MUSTER_PEERS_LIST:+none}}
newest_peers_list=${newest_peers_list:-tools/deps/peers-newest.txt}
newest_peers_folder="$deps_folder/peers-newest"
newest_torch_list=${MUSTER_NEWEST_TORCH_LIST:-tools/deps/peers-torch-newest.txt}
newest_torch_folder="$deps_folder/peers-torch-newest"
crates_lock=data/tokenizers/crate/Cargo.lock
crates_folder="$deps_folder/crates"
cargo_needed=1.85  # rust-version in Cargo.toml beside the lock file

# The groups of packages that the command needs. Every command needs the packages before the first group of the list.
package_groups="build test start"

# MUSTER_TOKENIZERS=0 leaves out the tokenizers that need cargo and its crates.
wants_tokenizers() {
  [ "${MUSTER_TOKENIZERS:-1}" != 0 ]
}

missing_packages() {
  local package command group= wanted=() groups=$package_groups
  ! wants_tokenizers || groups+=" tokenizers"
  while read -r package command; do
    case $package in
      '' | '#'*) continue ;;
      '['*']') group=${package:1:-1}; continue ;;
    esac
    case " $groups " in *" ${group:-build} "*) ;; *) continue ;; esac
    if [ -n "$command" ] && command -v "$command" > /dev/null 2>&1; then continue; fi
    wanted+=("$package")
  done < "${MUSTER_PACKAGE_LIST:-tools/deps/debian-packages.txt}"
  [ ${#wanted[@]} -gt 0 ] || return 0
  local installed
  # dpkg-query fails when it does not know one of the packages, but still prints the others.
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${wanted[@]}" 2> /dev/null | awk '$1 == "ii" {print $2}') || true
  for package in "${wanted[@]}"; do
    grep -qxF "$package" <<< "$installed" || printf '%s\n' "$package"
  done
}

confirm() {  # what will be done
  say "$1"
  [ "$assume_yes" = no ] && [ -t 0 ] && [ -t 2 ] || return 0
  local answer
  read -r -p "Go ahead? [Y/n] " answer || { say; answer=no; }
  case $answer in '' | [Yy]*) ;; *) die "nothing was installed" ;; esac
}

can_be_root() {
  [ "$(id -u)" = 0 ] || command -v sudo > /dev/null
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Whether root's rights are there without a password, which only the foreground could ask for.
is_root_unasked() {
  [ "$(id -u)" = 0 ] || sudo -n true 2> /dev/null
}

need_space() {  # folder, MiB, for what
  local free
  free=$(df -Pm "$1" | awk 'NR == 2 {print $4}')
  [ "$free" -ge "$2" ] || die "$3 needs $2 MiB in $1, which has $free MiB free: make room, or set MUSTER_DEPS_FOLDER"
}

setup_packages() {
  local missing
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -gt 0 ] || return 0
  agree_on_packages "${missing[@]}"
  install_packages "${missing[@]}"
}

agree_on_packages() {  # packages...
  local missing=("$@")
  command -v apt-get > /dev/null || die "these packages are missing and there is no apt-get: ${missing[*]}"
  # The output of apt-get and sudo goes into the log, so this message must come before.
  can_be_root || die "installing ${missing[*]} needs root: run ./dev setup as root once, or install sudo"
  confirm "setup: will install ${#missing[@]} Debian packages: ${missing[*]}"
}

install_packages() {  # packages...
  local missing=("$@") log
  log=$(mktemp)
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq > "$log" 2>&1 || true
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >> "$log" 2>&1; then
    local why
    why=$(grep -m1 '^E: ' "$log" || tail -n 1 "$log")
    die "apt-get could not install ${missing[*]} (log: $log): $why"
  fi
  rm -f "$log"
}

download_wheels() {  # list, folder
  local log
  log=$(mktemp)
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_25_x86_64 \
    --platform manylinux_2_18_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --platform manylinux_2_12_x86_64 \
    --python-version 3.11 --implementation cp --abi cp311 --abi none \
    -r "$1" -d "$2" > "$log" 2>&1; then
    local why
    why=$(grep -m1 -iE 'do not match|no space left|no matching distribution|hash' "$log" || tail -n 1 "$log")
    rm -rf "${2%/*}"
    case $why in
      *[Ss]pace*) die "the disk is full while downloading into $2: make room, or set MUSTER_DEPS_FOLDER" ;;
      *match* | *HASH* | *hash*) die "a wheel of $1 has a wrong hash or is not there: ${why#ERROR: } (log: $log)" ;;
      *) die "downloading the wheels of $1 failed: ${why#ERROR: } (log: $log)" ;;
    esac
  fi
  rm -f "$log"
}

wheel_stamp() {  # list
  sha256sum < "$1"
}

is_complete() {  # list, folder
  [ "$(cat "$2/.complete" 2> /dev/null)" = "$(wheel_stamp "$1")" ]
}

# Everything is unpacked into a staging folder and moved at the end. So a folder that exists is complete.
unpack_wheels() {  # list, folder, MiB, what, patterns inside the wheels...
  local list=$1 folder=$2 mib=$3 what=$4 wheel
  shift 4
  command -v unzip > /dev/null || die "unzip is missing, which unpacks $what: install it"
  mkdir -p "$deps_folder" 2> /dev/null || die "can't create $deps_folder: set MUSTER_DEPS_FOLDER to a folder that takes writes"
  need_space "$deps_folder" "$mib" "$what"
  local staging="$deps_folder/staging.$$"
  rm -rf "$deps_folder"/staging.*
  mkdir -p "$staging/wheels"
  download_wheels "$list" "$staging/wheels"
  for wheel in "$staging"/wheels/*.whl; do
    unzip -q -o "$wheel" "$@" -d "$staging/tree" 2> /dev/null || [ $? = 11 ] ||
      { rm -rf "$staging"; die "unpacking ${wheel##*/} into $deps_folder failed: is the disk full?"; }
    rm -f "$wheel"
  done
  # C++ programs do not need the Python binding.
  rm -rf "$staging/tree/torch/lib/libtorch_python.so" "$folder"
  mv "$staging/tree" "$folder" || die "can't move what was unpacked to $folder"
  wheel_stamp "$list" > "$folder/.complete"
  rm -rf "$staging"
}

# tools/deps/libtorch-versions.txt says which LibTorch a kind of build takes: default, cuda or worker.
versions_of() {  # kind
  sed -n "s/^$1 //p" "$libtorch_versions"
}

libtorch_list_of() {  # version, 2.11
  printf %s "tools/deps/libtorch-$1.txt"
}

libtorch_in() {  # list
  printf '%s/libtorch-%s' "$deps_folder" "$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$1")"
}

# The list of the LibTorch that a build of the preset takes, unless MUSTER_LIBTORCH names a folder.
libtorch_list_for() {  # preset
  if [ "$1" = cuda ]; then libtorch_list_of "$(versions_of cuda)"; else printf %s "${MUSTER_LIBTORCH_LIST:-$(libtorch_list_of "$(versions_of default)")}"; fi
}

libtorch_for() {  # preset
  printf %s "$(libtorch_in "$(libtorch_list_for "$1")")/torch"
}

# LibTorch keeps the layout of its wheel (torch/ next to nvidia/), so that its own RPATH finds the CUDA runtime
# libraries.
setup_libtorch() {  # preset
  if [ -n "${MUSTER_LIBTORCH:-}" ]; then
    [ -e "$MUSTER_LIBTORCH/lib/libtorch_cpu.so" ] ||
      die "MUSTER_LIBTORCH=$MUSTER_LIBTORCH: no lib/libtorch_cpu.so there; want the folder that holds include/ and lib/"
    return 0
  fi
  install_libtorch "$(libtorch_list_for "$1")"
}

install_libtorch() {  # list
  local folder
  folder=$(libtorch_in "$1")
  is_complete "$1" "$folder" && return 0
  confirm "setup: will download LibTorch ${folder##*-} (530 MB) from PyPI and unpack it into $folder"
  unpack_wheels "$1" "$folder" 2600 "LibTorch" 'torch/include/*' 'torch/lib/*' 'nvidia/*/lib/*' '*.dist-info/licenses/*'
}

# CUDA headers to compile with, and the libraries that LibTorch's CUDA side links. So programs of a CUDA build start on
# any machine.
has_cuda() {
  is_complete "$cuda_list" "$cuda_folder"
}

agree_on_cuda() {
  confirm "setup: will download CUDA 13.0 headers and libraries (1.8 GB) from PyPI and unpack them into $cuda_folder"
}

install_cuda() {
  unpack_wheels "$cuda_list" "$cuda_folder" 5000 "CUDA" 'nvidia/*/include/*' 'nvidia/*/lib/*'
}

setup_cuda() {
  setup_libtorch cuda
  has_cuda || { agree_on_cuda; install_cuda; }
  is_complete "$nvcc_list" "$nvcc_folder" && return 0
  confirm "setup: will download CUDA's compiler (100 MB) from PyPI and unpack it into $nvcc_folder"
  unpack_wheels "$nvcc_list" "$nvcc_folder" 400 "CUDA's compiler" 'nvidia/cu13/bin/*' 'nvidia/cu13/include/*' 'nvidia/cu13/nvvm/*'
}

# The sources of the crate tokenizers and of what it needs, which cargo checks by the hashes of Cargo.lock. A build then
# needs no network.
setup_crates() {
  local staging="$deps_folder/staging.$$" log version
  wants_tokenizers || return 0
  is_complete "$crates_lock" "$crates_folder" && return 0
  version=$(cargo --version 2> /dev/null | awk '{print $2}') || true
  [ -n "$version" ] || die "cargo is missing: install cargo-web, or Rust $cargo_needed or newer, or set MUSTER_TOKENIZERS=0"
  printf '%s\n' "$cargo_needed" "$version" | sort -C -V ||
    die "cargo is $version, and the tokenizers need $cargo_needed: install cargo-web, or a newer Rust, or set MUSTER_TOKENIZERS=0"
  confirm "setup: will download the crate tokenizers and what it needs (10 MB) from crates.io and unpack them into $crates_folder"
  mkdir -p "$deps_folder" 2> /dev/null || die "can't create $deps_folder: set MUSTER_DEPS_FOLDER to a folder that takes writes"
  need_space "$deps_folder" 600 "the crate tokenizers with its build"
  rm -rf "$deps_folder"/staging.*
  mkdir -p "$staging"
  log=$(mktemp)
  if ! cargo vendor --quiet --locked --manifest-path "${crates_lock%.lock}.toml" "$staging/crates" > "$log" 2>&1; then
    local why
    why=$(grep -m1 -iE 'no space left|checksum|hash|lock file' "$log" || grep -m1 '^error' "$log" || tail -n 1 "$log")
    rm -rf "$staging"
    die "downloading the crates of $crates_lock failed (log: $log): ${why#error: }"
  fi
  rm -rf "$log" "$crates_folder"
  mv "$staging/crates" "$crates_folder" || die "can't move the crates to $crates_folder"
  wheel_stamp "$crates_lock" > "$crates_folder/.complete"
  rm -rf "$staging"
}

# A Python with PyTorch and transformers. It shares the CUDA libraries, because PyTorch looks for them next to itself.
peers_site="$peers_folder/lib/python3.11/site-packages"

has_first_peers() {
  is_complete "$peers_list" "$peers_folder" && [ -e "$peers_folder/bin/python" ] && [ -e "$peers_site/nvidia" ]
}

# The newest transformers, in a folder that tests put before the packages of the first list.
has_newest_peers() {
  [ "$newest_peers_list" = none ] || is_complete "$newest_peers_list" "$newest_peers_folder"
}

has_peers() {
  has_first_peers && has_newest_peers
}

agree_on_peers() {
  python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    die "the packages of $peers_list are for Python 3.11, and python3 is $(python3 --version 2>&1)"
  has_cuda || agree_on_cuda
  if has_first_peers; then
    confirm "setup: will download the newest transformers (30 MB) from PyPI and install it into $newest_peers_folder"
    return 0
  fi
  confirm "setup: will download PyTorch 2.11.0 and transformers (600 MB) from PyPI and install them into $peers_folder"
}

install_peers() {
  has_first_peers || install_first_peers
  has_newest_peers || install_newest_peers
}

# Installs a list's wheels into a folder of its own, which goes before the packages of peers.txt.
install_beside_peers() {  # list, folder, log
  rm -rf "$2"
  "$peers_folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes \
    --only-binary :all: --target "$2" -r "$1" > "$3" 2>&1 && return 0
  rm -rf "$2"
  die "installing $1 failed (log: $3): $(grep -m1 -iE 'do not match|no space left|no matching|hash' "$3" || tail -n 1 "$3")"
}

# The folder is complete once its packages can be imported. The import compiles them once.
finish_beside_peers() {  # list, folder, log, statement
  env -u PYTHONDONTWRITEBYTECODE PYTHONPATH="$2" "$peers_folder/bin/python" -c "$4" > "$3" 2>&1 ||
    die "what is installed in $2 can't be imported (log: $3): $(tail -n 1 "$3")"
  wheel_stamp "$1" > "$2/.complete"
  rm -f "$3"
}

install_newest_peers() {
  local log
  need_space "$deps_folder" 300 "the newest transformers"
  log=$(mktemp)
  install_beside_peers "$newest_peers_list" "$newest_peers_folder" "$log"
  finish_beside_peers "$newest_peers_list" "$newest_peers_folder" "$log" \
    'from transformers import AutoTokenizer, BertForMaskedLM, Dinov2Model, GPTNeoXForCausalLM, LlamaForCausalLM, T5ForConditionalGeneration'
}

install_first_peers() {
  local log
  has_cuda || install_cuda
  need_space "$deps_folder" 2500 "PyTorch"
  rm -rf "$peers_folder"
  log=$(mktemp)
  python3 -m venv "$peers_folder" > "$log" 2>&1 ||
    { rm -rf "$peers_folder"; die "python3 -m venv failed, is python3-venv installed? (log: $log): $(tail -n 1 "$log")"; }
  # What has no wheel is built by the setuptools of the list, so nothing is downloaded that the list does not name.
  local pip=("$peers_folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes)
  if ! { "${pip[@]}" --only-binary :all: -r <(grep -v '# from source$' "$peers_list") &&
    { ! grep -q '# from source$' "$peers_list" ||
      "${pip[@]}" --no-build-isolation --use-pep517 -r <(grep '# from source$' "$peers_list"); }; } > "$log" 2>&1; then
    local why
    why=$(grep -m1 -iE 'do not match|no space left|no matching|hash' "$log" || tail -n 1 "$log")
    rm -rf "$peers_folder"
    case $why in *[Ss]pace*) why="$why: make room, or set MUSTER_DEPS_FOLDER" ;; esac
    die "installing $peers_list failed (log: $log): ${why#ERROR: }"
  fi
  ln -s --relative "$cuda_folder/nvidia" "$peers_site/nvidia"
  # The import compiles the packages once, whatever the environment says, so that no test has to.
  env -u PYTHONDONTWRITEBYTECODE "$peers_folder/bin/python" -c \
    'import torch, safetensors; from transformers import LlamaForCausalLM' > "$log" 2>&1 ||
    die "what is installed in $peers_folder can't be imported (log: $log): $(tail -n 1 "$log")"
  wheel_stamp "$peers_list" > "$peers_folder/.complete"
  rm -f "$log"
}

setup_peers() {
  has_peers && return 0
  agree_on_peers
  install_peers
}

# The newest PyTorch, in a folder that benchmarks put before the packages of peers.txt. It looks for CUDA's libraries next to
# itself, so links to those of cuda.txt lie beside its own.
setup_newest_torch() {
  is_complete "$newest_torch_list" "$newest_torch_folder" && return 0
  setup_peers
  confirm "setup: will download the newest PyTorch (940 MB) from PyPI and install it into $newest_torch_folder"
  need_space "$deps_folder" 3000 "the newest PyTorch"
  local log file link
  log=$(mktemp)
  install_beside_peers "$newest_torch_list" "$newest_torch_folder" "$log"
  for file in "$cuda_folder"/nvidia/*/lib/*.so*; do
    link="$newest_torch_folder/${file#"$cuda_folder/"}"
    [ -e "$file" ] && [ ! -e "$link" ] || continue
    mkdir -p "${link%/*}"
    ln -s --relative "$file" "$link"
  done
  finish_beside_peers "$newest_torch_list" "$newest_torch_folder" "$log" 'import torch'
}

# The sources of tools/deps/sources.txt, by apt and without root.
setup_sources() {
  local name missing=() folder log staging="$deps_folder/staging.$$"
  for name in $(grep -v '^#' tools/deps/sources.txt); do
    [ -d "$deps_folder/sources/$name" ] || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  confirm "setup: will download the sources of ${missing[*]} from Debian into $deps_folder/sources"
  log=$(mktemp)
  mkdir -p "$deps_folder/sources" "$staging"/{lists,cache}/partial
  folder=$(realpath "$staging")
  sed 's/^Types: .*/Types: deb-src/' /etc/apt/sources.list.d/*.sources > "$folder/apt.sources" 2> /dev/null || true
  sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > "$folder/apt.list" 2> /dev/null || true
  local apt=(apt-get -q -o "Dir::Etc::sourceparts=$folder" -o Dir::Etc::sourcelist=/dev/null -o "Dir::State::lists=$folder/lists"
    -o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=)
  if ! (cd "$folder" && "${apt[@]}" update && "${apt[@]}" source --download-only "${missing[@]}" &&
    for name in "${missing[@]}"; do dpkg-source --no-check -x "$name"_*.dsc "unpacked-$name"; done) > "$log" 2>&1; then
    rm -rf "$staging"
    die "apt could not fetch the sources of ${missing[*]} (log: $log): $(grep -m1 '^E: ' "$log" || tail -n 1 "$log")"
  fi
  for name in "${missing[@]}"; do mv "$folder/unpacked-$name" "$deps_folder/sources/$name"; done
  rm -rf "$staging" "$log"
}

setup() {  # preset
  [ -r /etc/debian_version ] || [ "$assume_yes" = yes ] || say "setup: this is no Debian; packages may have other names"
  setup_packages
  setup_libtorch "${1:-default}"
  setup_crates
}
