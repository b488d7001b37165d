#!/bin/sh
#SBATCH --time=UNLIMITED
#SBATCH --output=/dev/null
#SBATCH --no-kill --overcommit -Q --parsable
true
