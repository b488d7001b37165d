#!/bin/bash
#SBATCH -a 1,3,10-20:5
sed -n "${SLURM_ARRAY_TASK_ID}p" params.txt | xargs python run.py
