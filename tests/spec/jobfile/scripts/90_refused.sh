#!/bin/bash
#SBATCH --wrap="echo hi"
#SBATCH --time=90x
#SBATCH --nodes=1-4
#SBATCH --dependency=afterok:12345
#SBATCH --clusters=other
#SBATCH --array=5-1
#SBATCH --output="never ends
#SBATCH --nodes
#SBATCH stray
#SBATCH -y
#SBATCH --uid=0
#SBATCH --mem=1G --mem-per-cpu=1G
#SBATCH --cpus-per-task=many
