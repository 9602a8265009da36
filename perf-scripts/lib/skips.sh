# shellcheck shell=bash
# Tests that a run leaves out, from one list for cargo test and nextest.
# Sourced, never run.
#
# A list has one line for each: the test binary, a part of the test names (best a
# module, such as "referee::"), and why the tests cannot apply.

skip_binaries=() skip_patterns=() skip_reasons=()

# read_skips FILE…: reads the lists.
read_skips() {
    local binary pattern reason
    skip_binaries=() skip_patterns=() skip_reasons=()
    while read -r binary pattern reason; do
        case $binary in '' | '#'*) continue ;; esac
        [ -n "$reason" ] || fail "$*: \"$binary $pattern\" has no reason"
        skip_binaries+=("$binary") skip_patterns+=("$pattern") skip_reasons+=("$reason")
    done < <(cat "$@")
}

# skips_of BINARY: puts the options that make a test binary skip them into `skip_options`.
skips_of() {
    local i
    skip_options=()
    for i in "${!skip_binaries[@]}"; do
        # shellcheck disable=SC2034 # for the caller
        [ "${skip_binaries[i]}" != "$1" ] || skip_options+=(--skip "${skip_patterns[i]}")
    done
}

# say_skips WHERE BINARY…: prints what is left out of these, and why; then how much that is.
say_skips() {
    local where=$1 i count=0
    shift
    for i in "${!skip_binaries[@]}"; do
        case " $* " in
        *" ${skip_binaries[i]} "*)
            count=$((count + 1))
            printf 'left out %s: %s %s: %s\n' "$where" "${skip_binaries[i]}" "${skip_patterns[i]}" "${skip_reasons[i]}" ;;
        esac
    done
    [ $count -eq 0 ] || printf 'SKIPPED %s: %d kinds of tests that cannot apply there (tests/skip)\n' "$where" $count
}

# check_skips BINARY NAMES: fails if a pattern of the binary matches no test.
check_skips() {
    local i stale=0
    for i in "${!skip_binaries[@]}"; do
        [ "${skip_binaries[i]}" = "$1" ] || continue
        grep -qF -- "${skip_patterns[i]}" <<<"$2" && continue
        printf 'no test of %s has "%s" in its name: correct tests/skip\n' "$1" "${skip_patterns[i]}" >&2
        stale=1
    done
    return $stale
}
