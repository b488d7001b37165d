# command
if [ -z "$muster_exit" ]; then
  @COMMAND@ &
  muster_pid=$!@EARLY@
  while :; do
    muster_signalled=
    muster_now=0
    wait "$muster_pid" || muster_now=$?
    if [ "$muster_now" != 127 ] || [ -z "$muster_exit" ]; then muster_exit=$muster_now; fi
    if [ -z "$muster_signalled" ] || [ "$muster_now" -le 128 ]; then break; fi
  done
fi
