#!/bin/bash
#SBATCH --ntasks=16
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=7
#SBATCH --ntasks-per-socket=2
#SBATCH --distribution=block:cyclic
#SBATCH --exclude=n[1-3],n7
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export OMP_PLACES=cores
srun --cpu-bind=cores ./hybrid.x input.dat
