#!/usr/bin/env bash
# Installs uDAPL for C programs: the libraries of versions 1.2 and 2.0, their headers,
# dat.pc, dat2.pc, dat-check, dat-bench, mlx5-emu, manual pages, shell completions.
# Decision: docs/decisions/017-provider-in-another-registry.md (libudapl.so.1)
set -euo pipefail
umask 022 # every user may read the installed files

usage() {
    cat <<'TXT'
usage: dat-api/install.sh --prefix DIR [--destdir DIR] [--libdir DIR] [--strip] [--no-emulator]
                          [--library FILE [--library2 FILE] [--check FILE]]
       dat-api/install.sh --prefix DIR [--destdir DIR] --uninstall

Installs below the prefix:
  lib/libdat.so.1.2.0, libdat.so.1, libdat.so    uDAPL 1.2 and its links
  lib/libdat2.so.2.0.0, libdat2.so.2, libdat2.so uDAPL 2.0 and its links
  include/dat/*.h, include/dat2/*.h              the headers
  lib/pkgconfig/dat.pc, dat2.pc                  for pkg-config
  bin/dat-check                                  shows what each adapter name opens
  bin/dat-bench                                  the benchmarks
  bin/mlx5-emu, lib/mlx5-emu/libmlx5emu.so       the emulated ConnectX
  lib/mlx5-emu/mlx5-emu-pci                      the same for virtual machines
  share/man/man{1,3,5,7}/                        the manual pages: man udapl
  share/{bash-completion,fish,zsh}/              completions of dat-bench and mlx5-emu
  share/doc/udapl/                               the licences, a sample dat.conf
  share/udapl/installed                          what was installed, for --uninstall

  --prefix DIR    where programs will find it, for example /usr/local
  --destdir DIR   put the files below this folder instead, as packagers do;
                  dat.pc and dat2.pc still name the prefix
  --libdir DIR    put the libraries and pkgconfig here instead of PREFIX/lib: a folder below
                  the prefix, for example PREFIX/lib64 or lib/x86_64-linux-gnu. The
                  emulator's library is then in PREFIX/lib64/mlx5-emu or PREFIX/lib/mlx5-emu
  --strip         install libraries and programs without debugging symbols
  --no-emulator   do not install mlx5-emu and its library
  --library FILE  install this build of libdat.so. By default, cargo updates the
                  release build first (as root only if root owns the target
                  folder).
  --library2 FILE, --check FILE
                  with --library: install this build of libdat2.so, of dat-check. By
                  default those beside the library; what is missing there is not
                  installed. dat-bench and mlx5-emu are those beside the library.
  --uninstall     remove what was installed, and the folders made for it
  --help          this text

Exit status: 0 done, 1 usage, 2 not possible here.
TXT
}

say() { printf '%s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }
misuse() { printf 'error: %s (see --help)\n' "$*" >&2; exit 1; }

prefix='' destdir='' libdir='' library='' library2='' check='' uninstall=no strip=no emulator=yes
while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --destdir | --libdir | --library | --library2 | --check)
        [ -n "${2-}" ] || misuse "$1 needs a value"
        declare "${1#--}=$2"
        shift
        ;;
    --prefix=?* | --destdir=?* | --libdir=?* | --library=?* | --library2=?* | --check=?*)
        option=${1%%=*}
        declare "${option#--}=${1#*=}"
        ;;
    --uninstall) uninstall=yes ;;
    --strip) strip=yes ;;
    --no-emulator) emulator=no ;;
    --help | -h)
        usage
        exit 0
        ;;
    *) misuse "unknown argument '$1'" ;;
    esac
    shift
done
[ -n "$prefix" ] || misuse "--prefix is missing"
[ -z "$check" ] || [ -n "$library" ] || misuse "--check needs --library: both come from one build"
[ -z "$library2" ] || [ -n "$library" ] || misuse "--library2 needs --library: both come from one build"

# absolute PATH: as seen from where the script was called.
absolute() { case $1 in /*) printf '%s' "$1" ;; *) printf '%s/%s' "$PWD" "$1" ;; esac; }
prefix=$(absolute "$prefix")
prefix=${prefix%/}
[ -n "$prefix" ] || misuse "--prefix / would mix with the system's own files; use --prefix /usr if /usr is meant"
[ -z "$destdir" ] || destdir=$(absolute "$destdir")
[ -z "$library" ] || library=$(absolute "$library")
[ -z "$library2" ] || library2=$(absolute "$library2")
[ -z "$check" ] || check=$(absolute "$check")
# From here on, libdir is relative to the prefix.
lib=${libdir#"$prefix"/} lib=${lib%/}
case /${lib:=lib}/ in
//* | */../* | */./*) misuse "--libdir $libdir is not below the prefix $prefix: name a folder like lib64 or $prefix/lib64" ;;
esac
case $prefix/$lib in
*[[:space:]\'\"\\\$]*) fail "dat.pc cannot name a folder like '$prefix/$lib': no spaces, quotes, \$ or \\" ;;
esac
# mlx5-emu searches these two.
case $lib in lib64*) emulator_lib=lib64/mlx5-emu ;; *) emulator_lib=lib/mlx5-emu ;; esac
[ $strip = no ] || command -v strip >/dev/null 2>&1 || fail "--strip needs the program strip (package binutils)"

cd "$(dirname "$0")/.."
source=dat-api/libdat
source2=dat-api/libdat2
doc=share/doc/udapl
target=${CARGO_TARGET_DIR:-target}
version=1.2.0
version2=2.0.0
root=${destdir%/}$prefix
manifest=$root/share/udapl/installed

# need_writable: fails early, and once, if files cannot be created below the root.
need_writable() {
    local folder=$root below
    while [ ! -e "$folder" ] && [ ! -L "$folder" ]; do folder=$(dirname "$folder"); done
    for below in "$folder" "$root"/{bin,lib,"$lib"{,/pkgconfig},"$emulator_lib",include,include/dat,include/dat2,share,share/udapl,share/doc,"$doc",share/man,share/man/man{1,3,5,7}} \
        "$root"/share/{bash-completion{,/completions},zsh{,/site-functions},fish{,/vendor_completions.d}}; do
        if [ ! -d "$below" ]; then
            [ ! -e "$below" ] || fail "$below is not a folder"
        elif [ ! -w "$below" ] || [ ! -x "$below" ]; then
            [ "$(id -u)" -ne 0 ] || fail "$below is not writable, not even by root (a read-only file system?): choose another --prefix"
            fail "$below is not writable: run this as root, or choose another --prefix"
        fi
    done
}

# packaged FILE…: prints those of these files that belong to packages of this system, as "PACKAGE: FILE".
packaged() {
    {
        dpkg-query -S "$@" || true
        rpm -qf --qf '[%{=NAME}: %{FILENAMES}\n]' "$@" || true
    } 2>/dev/null | awk 'BEGIN { for (i = 1; i < ARGC; i++) wanted[ARGV[i]]; ARGC = 1 }
        substr($0, index($0, ": ") + 2) in wanted && !seen[$0]++' "$@"
}

# read_manifest: reads what the manifest lists into `recorded`, and prepares `kept`: the files of
# packages that were installed over this script's.
recorded=() kept=''
read_manifest() {
    local line files=()
    [ ! -f "$manifest" ] || mapfile -t recorded <"$manifest"
    for line in "${!recorded[@]}"; do
        case /${recorded[line]#* }/ in */../* | *//*) recorded[line]='' ;; esac
        case ${recorded[line]} in
        "file "*) files+=("$root/${recorded[line]#file }") ;;
        "folder "*) ;;
        *) fail "$manifest is damaged in line $((line + 1)), nothing was changed: each line is \"file PATH\" or \"folder PATH\", with a path below $root" ;;
        esac
    done
    [ -n "$destdir" ] || [ "${#files[@]}" -eq 0 ] || kept=$(packaged "${files[@]}")
}

# remove_installed: removes what the manifest lists, last entry first.
remove_installed() {
    local line path
    for ((line = ${#recorded[@]} - 1; line >= 0; line--)); do
        path=${recorded[line]#* }
        case ${recorded[line]} in
        "file "*) [[ $kept$'\n' == *": $root/$path"$'\n'* ]] || rm -f "$root/$path" ;;
        # Folders that contain other files are kept.
        "folder .") rmdir "$root" 2>/dev/null || true ;;
        "folder "*) rmdir "$root/$path" 2>/dev/null || true ;;
        esac
    done
}

if [ "$uninstall" = yes ]; then
    [ -f "$manifest" ] || fail "nothing is installed below $root ($manifest is missing)"
    read_manifest
    need_writable
    remove_installed
    say "removed what was installed below $root${kept:+, but not what packages have installed over it:$'\n'$kept}"
    exit 0
fi

# build: cargo rebuilds the library if it is out of date.
build() {
    library=$target/release/libdat.so
    PATH=$PATH:${HOME:-}/.cargo/bin
    if command -v cargo >/dev/null 2>&1 && { [ ! -e "$target" ] || [ -O "$target" ]; }; then
        cargo build --release --locked -p libdat -p libdat2 -p dat-check -p dat-bench -p mlx5-emulator -p mlx5-pci || fail "the library does not build"
    elif [ -f "$library" ]; then
        say "installing $library as it is"
    fi
    [ -f "$library" ] ||
        fail "$library is missing: build it first with cargo build --release"
}

# page_place FILE: prints where a manual page is installed.
page_place() {
    local section=${1##*.}
    printf 'share/man/man%s/%s.gz' "${section:0:1}" "${1##*/}"
}

installed=()
# folder PATH: creates a folder below the root, or with "." the root, and records new
# folders.
folder() {
    local path=$root/$1
    case $1 in
    .) path=$root ;;
    */*) folder "${1%/*}" ;;
    *) folder . ;;
    esac
    [ ! -d "$path" ] || return 0
    mkdir -p "$path" || fail "$path cannot be made"
    installed+=("folder $1")
}

# put MODE FILE PATH
put() {
    folder "${3%/*}"
    install -m "$1" "$2" "$root/$3"
    installed+=("file $3")
}

# put_code MODE FILE PATH: puts a library or program, stripped if asked for.
put_code() {
    put "$@"
    [ $strip = no ] || strip --strip-unneeded "$root/$3"
}

# put_page FILE: puts a manual page, compressed and without name and time, so that equal pages
# make equal files.
put_page() {
    gzip -9nc "$1" >"$generated/page"
    put 644 "$generated/page" "$(page_place "$1")"
}

# link NAME TARGET
link() {
    ln -sf "$2" "$root/$1"
    installed+=("file $1")
}

# pkg_config NAME VERSION: installs NAME.pc
pkg_config() {
    cat >"$root/$lib/pkgconfig/$1.pc" <<TXT
prefix=$prefix
libdir=\${prefix}/$lib
includedir=\${prefix}/include

Name: $1
Description: uDAPL ${2%.*}, the Direct Access Transport API of user programs
Version: $2
Libs: -L\${libdir} -l$1
Cflags: -I\${includedir}
TXT
    installed+=("file $lib/pkgconfig/$1.pc")
}

[ -n "$library" ] || build
[ -f "$library" ] || fail "$library is missing"
[ -z "$check" ] || [ -f "$check" ] || fail "$check is missing"
[ -z "$library2" ] || [ -f "$library2" ] || fail "$library2 is missing"
[ -n "$check" ] || check=$(dirname "$library")/dat-check
[ -n "$library2" ] || library2=$(dirname "$library")/libdat2.so
beside=$(dirname "$library")
need_writable
read_manifest
others=("$root"/{bin/{dat-check,dat-bench,mlx5-emu},"$emulator_lib"/{libmlx5emu.so,mlx5-emu-pci},"$lib"/libdat{,2}.so*,"$lib"/libudapl{.so.1,2.so.2},"$lib"/pkgconfig/dat{,2}.pc,include/dat{,2}/*,"$doc"/*})
for page in "$source"/man/* "$source2"/man/*; do
    page=$root/$(page_place "$page")
    others+=("$page" "${page%.gz}")
done
strays=() lines=$(printf '\n%s' "${recorded[@]}")$'\n'
for other in "${others[@]}"; do
    [ -e "$other" ] || [ -L "$other" ] || continue
    [[ $lines == *$'\n'"file ${other#"$root"/}"$'\n'* ]] || strays+=("$other")
done
if [ "${#strays[@]}" -gt 0 ]; then
    owner=$(packaged "${strays[0]}")
    more="exists and is not from this script"
    [ "${#strays[@]}" -eq 1 ] || more="and $((${#strays[@]} - 1)) more files exist and are not from this script"
    fail "${strays[0]} $more${owner:+, but from the package ${owner%%: *}}: remove what they belong to, or choose another --prefix"
fi
[ -z "$kept" ] || fail "a package has been installed over what this script had installed (${kept%%$'\n'*}): remove the rest with --uninstall, or choose another --prefix"
# Only now that nothing stands in the way: an installation that is refused loses nothing.
remove_installed

# The manifest is installed first, so that it is removed last. It is always written, so
# that a failed installation can be removed too.
folder share/udapl
installed+=("file share/udapl/installed")
generated=$(mktemp -d)
trap 'printf "%s\n" "${installed[@]}" >"$manifest"; rm -rf "$generated"' EXIT

put_code 644 "$library" "$lib/libdat.so.$version"
if [ -f "$check" ]; then
    put_code 755 "$check" bin/dat-check
else
    say "without dat-check: $check is missing (--check names another file)"
fi
link "$lib/libdat.so.1" "libdat.so.$version"
link "$lib/libdat.so" libdat.so.1
# The name for other registries, which may be called libdat.so.1 themselves.
link "$lib/libudapl.so.1" "libdat.so.$version"
for header in "$source"/include/dat/*.h; do
    put 644 "$header" "include/dat/${header##*/}"
done
folder "$lib/pkgconfig"
pkg_config dat "$version"
if [ -f "$library2" ]; then
    put_code 644 "$library2" "$lib/libdat2.so.$version2"
    link "$lib/libdat2.so.2" "libdat2.so.$version2"
    link "$lib/libdat2.so" libdat2.so.2
    # The name for other registries, which may be called libdat2.so.2 themselves.
    link "$lib/libudapl2.so.2" "libdat2.so.$version2"
    for header in "$source2"/include/dat2/*.h; do
        put 644 "$header" "include/dat2/${header##*/}"
    done
    for page in "$source2"/man/*; do
        put_page "$page"
    done
    pkg_config dat2 "$version2"
else
    say "without uDAPL 2.0: $library2 is missing (--library2 names another file)"
fi
for page in "$source"/man/*; do
    put_page "$page"
done

# program NAME: installs a program beside the library, and the manual pages and
# completions that it makes from the definitions of its options.
program() {
    local made=$generated/$1 file
    put_code 755 "$beside/$1" "bin/$1"
    if ! "$beside/$1" generate "$made" >/dev/null; then
        say "without manual pages and completions of $1: it does not run on this machine"
        return 0
    fi
    while read -r file; do
        case $file in
        man/*) put_page "$made/$file" ;;
        *) put 644 "$made/$file" "share/$file" ;;
        esac
    done < <(cd "$made" && find . -type f -printf '%P\n' | sort)
}

[ ! -f "$beside/dat-bench" ] || program dat-bench
if [ $emulator = yes ] && [ -f "$beside/mlx5-emu" ] && [ -f "$beside/libmlx5emu.so" ]; then
    program mlx5-emu
    put_code 644 "$beside/libmlx5emu.so" "$emulator_lib/libmlx5emu.so"
    [ ! -f "$beside/mlx5-emu-pci" ] || put_code 755 "$beside/mlx5-emu-pci" "$emulator_lib/mlx5-emu-pci"
fi
for file in LICENSE-MIT LICENSE-APACHE dat-api/dat.conf; do put 644 "$file" "$doc/${file##*/}"; done

# warn_of_another NAME PROVIDER: warns if the dynamic linker takes another file of this name, which
# has other adapters; PROVIDER is the name by which that one can load this library. It lists the libraries of a program instead of running it if
# LD_TRACE_LOADED_OBJECTS is set; dat-check asks it the same way.
warn_of_another() {
    local found owner=''
    found=$(LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=$1 "$BASH" --version 2>/dev/null | sed -n "s|^[[:space:]]*$1 => \(/[^ ]*\).*|\1|p")
    if [ -z "$found" ] || [ "$found" -ef "$root/$lib/$1" ]; then return 0; fi
    owner=$(packaged "$(realpath "$found")" | sed -n 's/^\([^ ,]*\): .*/ of the package \1/p')
    say "warning: programs get $found$owner instead of the $1 installed now. That library has other" \
        "adapters: opening one of this library fails with DAT_PROVIDER_NOT_FOUND. Remove it, or set" \
        "LD_LIBRARY_PATH=$prefix/$lib (where ldconfig searches $prefix/$lib first, run ldconfig), or name" \
        "$prefix/$lib/$2 as the library of an entry in dat.conf: that library then loads it." >&2
}

say "installed uDAPL below $root"
if [ -z "$destdir" ]; then
    [ ! -f "$check" ] || say "$prefix/bin/dat-check shows what programs can open, and what to do if they cannot"
    say "pkg-config finds dat (1.2) and dat2 (2.0) with PKG_CONFIG_PATH=$prefix/$lib/pkgconfig, programs with LD_LIBRARY_PATH=$prefix/$lib,"
    say "man with MANPATH=$prefix/share/man: (the colon keeps the other pages);"
    say "none of these is needed in directories that the system searches (/usr/local, after ldconfig)"
    warn_of_another libdat.so.1 libudapl.so.1
    [ ! -f "$library2" ] || warn_of_another libdat2.so.2 libudapl2.so.2
fi
