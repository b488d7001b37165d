# teardown: in a subshell, so that an error in it cannot change the exit code
trap 'exit "$muster_exit"' EXIT
(
@LINES@
) || :
