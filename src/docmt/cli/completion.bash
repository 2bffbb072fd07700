_docmt() {
    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="%commands% --help --version"
    else
        case "${COMP_WORDS[1]} $before" in
%values%
        esac
        if [ -z "$words" ]; then
            case "$current" in
            -*) case "${COMP_WORDS[1]}" in
%flags%
                esac ;;
            esac
        fi
    fi
    [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _docmt docmt
