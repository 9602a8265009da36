# shellcheck shell=bash
# Packages of another Debian release, unpacked into a directory; nothing is
# installed. Sourced after setup.sh, never run.

# debian_mirror: prints the URI of the Debian mirror of this machine's apt, or fails.
# DEBIAN_MIRROR takes precedence; systems other than Debian need it.
debian_mirror() {
    local codename
    if [ -n "${DEBIAN_MIRROR-}" ]; then
        printf '%s\n' "$DEBIAN_MIRROR"
        return 0
    fi
    [ "$(os_release ID)" = debian ] || return 1
    codename=$(os_release VERSION_CODENAME)
    # shellcheck disable=SC2016 # apt substitutes these
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        awk -v release="$codename" '$2 == release && $3 == "main" { print $1; exit }' | grep .
}

# other_apt DIR SUITE MIRROR [SUITE…]: prepares a separate apt in DIR, with these suites only and
# no package installed. apt-get uses it with the options in `apt_options`.
other_apt() {
    local dir=$1 suite=$2 mirror=$3 keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    shift 3
    [ -r $keyring ] || keyring=/etc/apt/trusted.gpg.d
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    : >"$dir/status"
    for suite in "$suite" "$@"; do printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$suite"; done >"$dir/sources.list"
    apt_options=(
        -o "Dir::State=$dir" -o "Dir::State::Lists=$dir/lists" -o "Dir::State::status=$dir/status"
        -o "Dir::Cache=$dir/cache" -o "Dir::Etc::sourcelist=$dir/sources.list"
        -o Dir::Etc::sourceparts=- -o "APT::Sandbox::User=$(id -un)"
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
    )
    apt-get "${apt_options[@]}" -qq update
}

# unpack_debs DIR PACKAGE…: downloads the packages with the apt of `other_apt`
# and unpacks them in DIR, without their dependencies.
unpack_debs() {
    local root=$1 downloads deb
    shift
    downloads=$root.debs
    rm -rf "$downloads"
    mkdir -p "$downloads" "$root"
    (cd "$downloads" && apt-get "${apt_options[@]}" -qq download "$@") || return
    # Debian's directories of programs and libraries are links into usr.
    for deb in bin sbin lib lib64; do ln -sfn "usr/$deb" "$root/$deb"; done
    for deb in "$downloads"/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -C "$root" -x --keep-directory-symlink --no-same-owner || return
    done
    rm -rf "$downloads"
}
