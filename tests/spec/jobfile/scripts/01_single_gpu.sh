#!/bin/bash
#SBATCH --job-name=single
#SBATCH --output=logs/%x-%j.out
#SBATCH --error=logs/%x-%j.err
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --partition=gpu

module purge
module load python/3.11 cuda/12.1
source ~/venv/bin/activate

python train.py --epochs 10
