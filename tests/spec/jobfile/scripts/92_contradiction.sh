#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=5
srun hostname
