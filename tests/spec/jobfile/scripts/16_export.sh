#!/bin/bash
#SBATCH --export=DATA_ROOT,MODE=fast,NOT_SET_HERE
#SBATCH --chdir=/tmp
#SBATCH --hold
#SBATCH --no-requeue
#SBATCH --comment="made by hand"
#SBATCH --dependency=singleton
env
