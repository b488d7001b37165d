#!/bin/bash
#SBATCH --account=physics
#SBATCH --array=0-1%1
#SBATCH --chdir=/data/slurm/set-7.1
#SBATCH --comment=muster:s:set.7.1
#SBATCH --contiguous
#SBATCH --cpus-per-task=3
#SBATCH --exclude="node[7-8]"
#SBATCH --gpus-per-task=1
#SBATCH --job-name="it's; $(reboot) #SBATCH --exclusive"
#SBATCH --mem=2M
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --open-mode=append
#SBATCH --output=/data/slurm/set-7.1/slurm-%a.log
#SBATCH --partition=low
#SBATCH --requeue
#SBATCH --time=2
#SBATCH --wckey=a

# Slurm itself restarted this run. muster submits a replacement, so this run ends here.
if [ "${SLURM_RESTART_COUNT:-0}" != 0 ]; then
  echo "muster: restart $SLURM_RESTART_COUNT by Slurm itself: nothing to do" >&2
  exit 0
fi

# modules
if ! type module > /dev/null 2>&1; then
  for muster_file in "${MODULESHOME:-}/init/bash" /etc/profile.d/modules.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/lmod.sh; do
    if [ -r "$muster_file" ]; then . "$muster_file"; break; fi
  done
fi

# setup
muster_begun=/data/slurm/set-7.1/begun${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}
if ! mkdir "$muster_begun" 2> /dev/null && [ -d "$muster_begun" ]; then
  echo "muster: this attempt has begun already, and Slurm does not know it: nothing to do" >&2
  exit 0
fi
/bin/sh -c 'exec env -u LD_LIBRARY_PATH -u LD_PRELOAD "MUSTER_RANK_LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}" "MUSTER_RANK_LD_PRELOAD=${LD_PRELOAD-}" "$@"' muster-agent /opt/muster-agent --prepare --set /data/slurm/set-7.1/set.json --index "$SLURM_ARRAY_TASK_ID" || exit 1
export MUSTER_STARTED_AT=$(date +%s)
module load x

muster_exit=
muster_signalled=
trap 'muster_signalled=1' TERM

# command
if [ -z "$muster_exit" ]; then
  srun --unbuffered --cpus-per-task=3 --cpu-bind=cores /bin/sh -c 'exec env -u LD_LIBRARY_PATH -u LD_PRELOAD "MUSTER_RANK_LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}" "MUSTER_RANK_LD_PRELOAD=${LD_PRELOAD-}" "$@"' muster-agent /opt/muster-agent --set /data/slurm/set-7.1/set.json --index "$SLURM_ARRAY_TASK_ID" &
  muster_pid=$!
  while :; do
    muster_signalled=
    muster_now=0
    wait "$muster_pid" || muster_now=$?
    if [ "$muster_now" != 127 ] || [ -z "$muster_exit" ]; then muster_exit=$muster_now; fi
    if [ -z "$muster_signalled" ] || [ "$muster_now" -le 128 ]; then break; fi
  done
fi

# teardown: in a subshell, so that an error in it cannot change the exit code
trap 'exit "$muster_exit"' EXIT
(
rm -rf /scratch/$SLURM_JOB_ID
) || :
exit "$muster_exit"
