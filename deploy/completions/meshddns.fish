# fish completion for meshddns; the flags are those that the program itself tells.
function __meshddns_flags
    meshddns -h 2>&1 | sed -n '/^  -/{s/^  -\([a-z0-9-]*\).*/\1/;N;s/\n[[:space:]]*/\t/;p;}'
end
complete -c meshddns -f
for line in (__meshddns_flags)
    set -l flag (string split -m 1 \t -- $line)
    switch $flag[1]
        case db token-file seal-key term replica-socket tls-cert tls-key tls-client-ca provision
            complete -c meshddns -o $flag[1] -d "$flag[2]" -rF
        case language
            complete -c meshddns -o $flag[1] -d "$flag[2]" -xa 'zh en'
        case log-format
            complete -c meshddns -o $flag[1] -d "$flag[2]" -xa 'text json'
        case ipv4 ipv6
            complete -c meshddns -o $flag[1] -d "$flag[2]" -xa 'auto none interface: file: url:https://'
        case listen
            complete -c meshddns -o $flag[1] -d "$flag[2]" -xa '127.0.0.1:8053 unix:/run/meshddns.sock'
        case socket-group
            complete -c meshddns -o $flag[1] -d "$flag[2]" -xa '(__fish_complete_groups)'
        case check version
            test $flag[1] = check; and complete -c meshddns -o check=strict -d '-check, and a warning is a mistake'
            complete -c meshddns -o $flag[1] -d "$flag[2]"
        case '*'
            complete -c meshddns -o $flag[1] -d "$flag[2]" -x
    end
end
