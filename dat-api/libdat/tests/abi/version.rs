//! What the tests of the ABI have to know about uDAPL 1.2.

use core::any::TypeId;

/// The folder of the headers.
pub(crate) const FOLDER: &str = "dat";
/// The headers that together include all others.
pub(crate) const HEADERS: [&str; 2] = ["dat/udat.h", "dat/dat_registry.h"];
/// The headers of the standard.
pub(crate) const STANDARD: [&str; 10] = [
    "dat.h",
    "dat_error.h",
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
pub(crate) const FACTS: [usize; 7] = [297, 126, 32, 72, 72, 68, 70];
/// The least number of assertions about them in C.
pub(crate) const ASSERTIONS: usize = 1400;
/// The kinds of calls in the facts.
pub(crate) const CALLS: [&str; 2] = ["call", "own"];
/// A program that uses what is not in the facts.
pub(crate) const USE: &str = include_str!("use.c");
/// The library, as cargo builds it.
pub(crate) const LIBRARY: &str = "libdat.so";
pub(crate) const SONAME: &str = "libdat.so.1";
/// The version of the exported symbols.
pub(crate) const NODE: Option<&str> = Some("Base");

/// Returns the type of a list of arguments; no call has one.
pub(crate) fn va_list() -> TypeId {
    TypeId::of::<()>()
}
