#!/usr/bin/env python3
#SBATCH --time=0-1
#SBATCH --cpus-per-task=2
import sys
print(sys.argv, __file__)
