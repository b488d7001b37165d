# signals that Slurm sends to this script alone
muster_pid=
for muster_signal in HUP INT USR1 USR2; do
  trap "muster_signalled=1; if [ -n \"\$muster_pid\" ]; then kill -$muster_signal \"\$muster_pid\"; fi" "$muster_signal"
done
