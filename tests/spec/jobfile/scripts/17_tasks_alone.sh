#!/bin/bash
#SBATCH -n8
#SBATCH --mem-per-cpu=2500M --reservation maintenance
srun hostname
