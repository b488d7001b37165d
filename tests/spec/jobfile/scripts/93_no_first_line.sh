#SBATCH --time=1
echo hi
