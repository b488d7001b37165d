#!/usr/bin/env bash
# The first contact of muster with the GPUs of a machine: builds, tests, trains in both communicator modes, kills a rank, stops,
# measures compiled FSDP2, and prints one table. From a clean clone: bench/first_contact.sh; --dry shows what it would do.
# Everything is in first_contact.py; --help has the options.
set -euo pipefail
command -v python3 > /dev/null || { echo "first_contact: python3 is missing: install it" >&2; exit 1; }
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/first_contact.py" "$@"
