//! What the tests of the ABI have to know about uDAPL 2.0.

use core::any::TypeId;

/// The folder of the headers.
pub(crate) const FOLDER: &str = "dat2";
/// The headers that together include all others.
pub(crate) const HEADERS: [&str; 3] = [
    "dat2/udat.h",
    "dat2/dat_registry.h",
    "dat2/dat_ib_extensions.h",
];
/// The headers of the standard, and of the extensions.
pub(crate) const STANDARD: [&str; 11] = [
    "dat.h",
    "dat_error.h",
    "dat_ib_extensions.h",
    "dat_platform_specific.h",
    "dat_redirection.h",
    "dat_registry.h",
    "dat_vendor_specific.h",
    "udat.h",
    "udat_config.h",
    "udat_redirection.h",
    "udat_vendor_specific.h",
];
/// Numbers of facts: enumerators, integer macros, structures, calls, pointers to
/// functions, slots and members of the provider table.
pub(crate) const FACTS: [usize; 7] = [591, 148, 39, 83, 83, 79, 81];
/// The least number of assertions about them in C.
pub(crate) const ASSERTIONS: usize = 1900;
/// The kinds of calls in the facts.
pub(crate) const CALLS: [&str; 2] = ["call", "own"];
/// A program that uses what is not in the facts.
pub(crate) const USE: &str = include_str!("use.c");
/// The library, as cargo builds it.
pub(crate) const LIBRARY: &str = "libdat2.so";
pub(crate) const SONAME: &str = "libdat2.so.2";
/// The version of the exported symbols.
pub(crate) const NODE: Option<&str> = Some("DAT_2.0");

/// Returns the type of a list of arguments as a parameter: on x86-64 `va_list` is an array,
/// elsewhere a structure.
pub(crate) fn va_list() -> TypeId {
    #[cfg(target_arch = "x86_64")]
    return TypeId::of::<*mut dat2::abi::__va_list_tag>();
    #[cfg(not(target_arch = "x86_64"))]
    return TypeId::of::<dat2::abi::va_list>();
}
