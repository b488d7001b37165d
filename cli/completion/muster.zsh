#compdef muster
# zsh completion of muster; load it with: source <(muster completion zsh)
_muster_ask() {
  local answer
  answer=$(${~program} __complete "$@" 2>/dev/null)
  [[ -n $answer ]] || return 1
  local -a found
  found=("${(@f)answer}")
  found=("${(@)found//$'\t'/:}")
  _describe -V value found
}
_muster() {
  local program=$words[1]
  local context state state_descr line
  typeset -A opt_args
  _arguments -C@OPTIONS@ \
        '1:command:->command' \
        '*::argument:->argument'
  case $state in
    command)
      local -a commands=(
@COMMANDS@      )
      _describe command commands ;;
    argument)
      case $words[1] in
@WORDS@      esac ;;
  esac
}
if [ "$funcstack[1]" = _muster ]; then _muster "$@"; else compdef _muster muster; fi
