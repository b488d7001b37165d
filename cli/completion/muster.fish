# fish completion of muster; load it with: muster completion fish | source
function __muster_ask
  set -l words (commandline -opc)
  command $words[1] __complete $argv 2>/dev/null
end
complete -c muster -f
