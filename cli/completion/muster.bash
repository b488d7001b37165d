# bash completion of muster; load it with: source <(muster completion bash)
_muster_ask() {  # numbers of jobs, names of sweeps or of series, of the controller that the command line names
  local program=${COMP_WORDS[0]/#\~/$HOME}
  "$program" "${where[@]}" __complete "$@" 2>/dev/null | cut -f1
}
_muster() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= i
  local -a where=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --address|--token-file) where+=("${COMP_WORDS[i]}" "${COMP_WORDS[i+1]}"); ((i++)) ;;
      -*) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  case $command:$prev in
@VALUES@  esac
  case $command in
    '') words='@COMMANDS@ @OPTIONS@' ;;
@WORDS@  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _muster muster
