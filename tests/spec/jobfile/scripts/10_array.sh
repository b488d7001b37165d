#!/bin/bash
#SBATCH --array=0-7%2
#SBATCH --job-name=grid
#SBATCH --output=out/%A_%a.txt
lrs=(1e-2 1e-3 1e-4 1e-5 3e-2 3e-3 3e-4 3e-5)
echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"
python train.py --lr "${lrs[$SLURM_ARRAY_TASK_ID]}"
