# signals that Slurm sends to this script alone; those that come before the command runs wait for it
muster_pid=
muster_early=
for muster_signal in HUP INT USR1 USR2; do
  trap "muster_signalled=1; if [ -n \"\$muster_pid\" ]; then kill -$muster_signal \"\$muster_pid\"; else muster_early+=' $muster_signal'; fi" "$muster_signal"
done
