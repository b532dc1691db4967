//! The completion scripts of the shells.

/// A shell that can complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// The completion script for a shell.
pub(super) fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    }
}

/// bash ends words at `@`, `=`, `:` and `#`. So the script takes the word from the line itself, and removes
/// from the candidates the part that bash counts as earlier words.
const BASH: &str = r#"# bash completion for zpool, zfs, zdb, zstream, fsstat, cenote and cenoted: written by `cenote completions bash`.
# Source it, or save it as /usr/share/bash-completion/completions/cenote (and link zpool, zfs, zdb, zstream, fsstat, cenoted to it).
_cenote() {
    local line words word last head answer
    line=${COMP_LINE:0:COMP_POINT}
    read -ra words <<< "$line"
    if [[ $line == *[[:space:]] ]]; then
        words+=("")
    fi
    word=${words[${#words[@]} - 1]}
    last=${COMP_WORDS[COMP_CWORD]}
    if [[ $last == [=:@] ]]; then
        last=
    fi
    head=${word%"$last"}
    COMPREPLY=()
    while IFS= read -r answer; do
        COMPREPLY+=("${answer#"$head"}")
    done < <(cenote complete -- "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=@,] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o default -F _cenote zpool zfs zdb zstream fsstat cenote cenoted
"#;

const ZSH: &str = r#"#compdef zpool zfs zdb zstream fsstat cenote cenoted
# zsh completion for zpool, zfs, zdb, zstream, fsstat, cenote and cenoted: written by `cenote completions zsh`.
# Save it as _cenote in a folder of $fpath.
_cenote() {
    local -a answers open closed
    answers=("${(@f)$(cenote complete -- "${(@)words[1,CURRENT]}" 2>/dev/null)}")
    open=("${(@M)answers:#*[=@,]}")
    closed=("${(@)answers:#*[=@,]}")
    (( ${#open} )) && compadd -Q -S '' -- "${(@)open:#}"
    (( ${#closed} )) && compadd -Q -- "${(@)closed:#}"
    if [[ -z "${(j::)answers}" ]]; then
        _files
    fi
}
if [[ ${funcstack[1]} == _cenote ]]; then
    _cenote "$@"
else
    compdef _cenote zpool zfs zdb zstream fsstat cenote cenoted
fi
"#;

const FISH: &str = r#"# fish completion for zpool, zfs, zdb, zstream, fsstat, cenote and cenoted: written by `cenote completions fish`.
# Save it as ~/.config/fish/completions/cenote.fish (and link zpool.fish, zfs.fish, zdb.fish, zstream.fish, fsstat.fish, cenoted.fish to it).
function __cenote_complete
    set -l words (commandline -opc) (commandline -ct)
    cenote complete -- $words 2>/dev/null
end
for command in zpool zfs zdb zstream fsstat cenote cenoted
    complete -c $command -a '(__cenote_complete)'
end
"#;
