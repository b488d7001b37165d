#!/bin/bash -l
#SBATCH --job-name "my run/1"
#SBATCH --time=90
#SBATCH --mail-user=ada@example.org
#SBATCH --mail-type=BEGIN,END,FAIL

conda activate torch
which python
python - <<'PY'
import sys
print("args", sys.argv)
PY
