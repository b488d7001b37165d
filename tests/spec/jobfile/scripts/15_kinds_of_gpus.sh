#!/bin/bash
#SBATCH --gpus=a100:2,v100:1
#SBATCH --gpus-per-task=a100:1
#SBATCH --mem-per-gpu=40G
#SBATCH --gpu-bind=closest
nvidia-smi -L
