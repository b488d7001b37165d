#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:a100:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=20:00:00
#SBATCH --qos=qos_gpu-t3
#SBATCH --account=abc@v100

cd ${SLURM_SUBMIT_DIR}
module load pytorch-gpu/py3/2.1
set -x
srun python -u train.py
