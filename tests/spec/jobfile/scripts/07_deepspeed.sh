#!/bin/bash
#SBATCH --job-name=deepspeed
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=a100:8
#SBATCH --exclusive
#SBATCH --mem=0

function makehostfile() {
perl -e '$slots=split /,/, $ENV{"SLURM_STEP_GPUS"};
@nodes = split /\n/, qx[scontrol show hostnames $ENV{"SLURM_JOB_NODELIST"}];
print map { "$_ slots=8\n" } @nodes'
}
makehostfile > hostfile
deepspeed --hostfile=hostfile --launcher=slurm train.py --deepspeed ds_config.json
