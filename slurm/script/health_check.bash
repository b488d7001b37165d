# health check
muster_health=0
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 bash -e -c @LINES@ || muster_health=$?
if [ "$muster_health" != 0 ]; then
  echo "muster: the health check failed with exit code $muster_health" >&2
  muster_exit=@EXIT@
fi
