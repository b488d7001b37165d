#!/bin/bash
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --time=00:10:00

handler() {
  echo "caught USR1, requeueing"
  scontrol requeue "$SLURM_JOB_ID"
}
trap handler USR1
srun python train.py --resume &
wait
