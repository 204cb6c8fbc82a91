# bash completion for meshddns; the flags are those that the program itself tells.
_meshddns() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local candidates=()
  case ${before/#--/-} in
    -db | -token-file | -seal-key | -term | -replica-socket | -tls-cert | -tls-key | -tls-client-ca | -provision) mapfile -t candidates < <(compgen -f -- "$word") ;;
    -language) candidates=(zh en) ;;
    -log-format) candidates=(text json) ;;
    -ipv4 | -ipv6) candidates=(auto none interface: file: url:https://) ;;
    -listen) candidates=(127.0.0.1:8053 unix:/run/meshddns.sock) ;;
    -socket-group) mapfile -t candidates < <(compgen -g -- "$word") ;;
    *) mapfile -t candidates < <(meshddns -h 2>&1 | sed -n 's/^  \(-[a-z0-9-]*\).*/\1/p'; echo -check=strict) ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "${candidates[*]}" -- "$word")
}
complete -o bashdefault -F _meshddns meshddns
