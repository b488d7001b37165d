#!/bin/bash
# The script that examples/finetune-multinode.toml is made of.
#SBATCH --job-name=finetune
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
#SBATCH --time=12:00:00
#SBATCH --partition=main
#SBATCH --output=%x-%j.out
#SBATCH --mem=64G
##SBATCH --account=lab
##SBATCH --qos=normal
##SBATCH --mail-user=you@example.org
##SBATCH --mail-type=END,FAIL

module load cuda
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))

srun python finetune.py --batch-size 256
