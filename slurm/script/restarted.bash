# Slurm itself restarted this run. muster submits a replacement, so this run ends here.
if [ "${SLURM_RESTART_COUNT:-0}" != 0 ]; then
  echo "muster: restart $SLURM_RESTART_COUNT by Slurm itself: nothing to do" >&2
  exit 0
fi
