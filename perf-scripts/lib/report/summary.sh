# shellcheck shell=bash
# The summary page of a report, and removing names from it. Sourced, never run.
# Uses the variables of perf-scripts/hardware-report.

# versions: prints the rows of a table.
versions() {
    printf '| %s | %s |\n' \
        project "$(git describe --always --dirty --tags 2>/dev/null || printf 'unknown')" \
        kernel "$(uname -sr)" \
        distribution "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2>/dev/null)" \
        rdma-core "$(rdma_core)" \
        processor "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs" \
        host "$(uname -n)"
    [ "${device:?}" = emu ] || printf '| %s | %s |\n' \
        driver "$(driver_of "$device")" firmware "$(firmware "$device")" board "$(board "$device")"
}

# write_summary: prints Markdown.
write_summary() {
    local at step file
    printf '# uDAPL on %s, port %s\n\n' "${device:?}" "${port:?}"
    if [ "$device" = emu ]; then
        printf '**The device is EMULATED: no figure here is that of hardware.**\n\n'
    fi
    # shellcheck disable=SC2154 # of the script that sources this
    [ "$short" = 0 ] || printf 'Short form: a sample of the tests, short measurements.\n\n'
    printf '| what | which |\n| --- | --- |\n'
    versions
    # shellcheck disable=SC2016 # it is Markdown
    printf '\nMore in `facts.txt`.\n\n## Steps\n\n| step | result | seconds | |\n| --- | --- | --- | --- |\n'
    # shellcheck disable=SC2154
    for at in "${!names[@]}"; do
        printf '| [%s](logs/%s.log) | %s | %s | %s |\n' \
            "${names[at]}" "${names[at]}" "${results[at]}" "${times[at]}" "${lines[at]//|//}"
    done
    # shellcheck disable=SC2154
    if [ "${#helped[@]}" -gt 0 ]; then
        printf '\n## What failed, and which switch helps\n\n'
        printf -- '- %s\n' "${helped[@]}"
        for at in "${!names[@]}"; do
            [[ ${results[at]} == FAILED* ]] || continue
            printf '\n### The end of logs/%s.log\n\n```\n' "${names[at]}"
            tail -n 40 "${report:?}/logs/${names[at]}.log"
            printf '```\n'
        done
    fi
    for step in devices lat cost wake; do
        file=$report/logs/$step.log
        [ -s "$file" ] || continue
        printf '\n## %s\n\n```\n' "$step"
        # The log has a histogram for each size.
        head -n 120 "$file"
        printf '```\n'
    done
    printf '\n## What is here\n\n'
    (cd "$report" && find . -type f | sort | sed 's/^\.\//- /')
}

# make_anonymous DIR: removes names and addresses from all its files.
make_anonymous() {
    local hex="[0-9a-fA-F]" host user=${SUDO_USER:-${USER:-root}} home=${HOME:-/root} rules
    host=$(uname -n)
    rules=(
        -e "s/\\b$hex{4}(:$hex{4}){7}\\b/GID/g"
        -e "s/\\b(fe80|fd[0-9a-f]{2}|2[0-9a-f]{3})(:[0-9a-f]{0,4}){2,7}/ADDRESS/g"
        -e "s/\\b$hex{2}(:$hex{2}){7,19}\\b/HARDWARE-ADDRESS/g"
        -e "s/\\b$hex{2}(:$hex{2}){5}\\b/MAC/g"
        -e "s/\\b$hex{4}(:$hex{4}){3}\\b/GUID/g"
        -e "s/\\b0x$hex{16}\\b/GUID/g"
        -e "s/::ffff:[0-9]+(\\.[0-9]+){3}/ADDRESS/g"
        -e "s/\\b([0-9]{1,3}\\.){3}[0-9]{1,3}\\b/ADDRESS/g"
        -e "s/(Serial number:|\\[SN\\]).*/\\1 SERIAL/I"
        -e "s#$(printf '%s' "$home" | sed 's/[][\.*^$#]/\\&/g')/#HOME/#g"
        -e "s/\\b$(printf '%s' "${host%%.*}" | sed 's/[][\.*^$/]/\\&/g')(\\.[A-Za-z0-9.-]+)?\\b/HOST/g"
    )
    # A user name that is a common word identifies no user.
    [ "$user" = root ] || rules+=(-e "s/\\b$(printf '%s' "$user" | sed 's/[][\.*^$/]/\\&/g')\\b/USER/g")
    find "$1" -type f -exec sed -Ei "${rules[@]}" {} +
}
