#!/bin/bash
#SBATCH -J torchrun        # name
#SBATCH -p gpu -N 1 -n 1
#SBATCH -c 32
#SBATCH --gpus-per-node=4
#SBATCH -t 2-00:00:00
#SBATCH -o %x.%j.log

set -euo pipefail
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
torchrun --standalone --nproc_per_node="$SLURM_GPUS_ON_NODE" train.py "$@"
