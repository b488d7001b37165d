#!/bin/bash
#SBATCH --ntasks=1
#SBATCH hetjob
#SBATCH --ntasks=4
srun --het-group=0,1 hostname
