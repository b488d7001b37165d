#!/bin/bash
#SBATCH --job-name=heredoc --ntasks=1 \
#SBATCH --time=10
cat > config.yaml <<EOF
lr: ${LR:-3e-4}
#SBATCH --time=99
EOF
srun bash <<'INNER'
echo "$SLURM_PROCID"
INNER
