#!/usr/bin/env bash
# A comment before the options.

#SBATCH --constraint="a100&ib"
##SBATCH --partition=never
# SBATCH --partition=nor-this
  #SBATCH --partition=indented
#SBATCH --licenses=matlab:2 --nice
#SBATCH --begin=now+1hour
set -euo pipefail
#SBATCH --partition=too-late
echo "data in ${DATA_ROOT:?set it}"
