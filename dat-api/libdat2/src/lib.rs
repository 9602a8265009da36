//! `libdat2.so.2`: uDAPL 2.0 for C programs.
//!
//! C programs include `<dat2/udat.h>` and link with `-ldat2`. The code is that of
//! `libdat` (uDAPL 1.2), compiled with the types of this version; its crate page says
//! how a call runs. Only these modules are of this library:
//!
//! - [`abi`]: the types and values of the headers in `include/dat2`, generated from
//!   them.
//! - `version`: the numbers, members of structures and calls that uDAPL 2.0 has
//!   otherwise, or alone.
//!
//! Decision: `docs/decisions/070-one-source-for-two-abis.md`
//!
//! Each exported function is an alias, with the version `DAT_2.0`, of a hidden function
//! whose name begins with an underscore (`build.rs`).
//! Decision: `docs/decisions/069-symbol-versions-by-aliases.md`

/// Returns the name that an exported function has before the linker makes its alias.
macro_rules! symbol {
    ($name:ident) => {
        concat!("_", stringify!($name))
    };
}

// Hides the functions; their aliases are exported.
include!(concat!(env!("OUT_DIR"), "/hidden.rs"));

pub mod abi;
pub mod exports;
mod face;
mod providers;
mod version;

pub use face::provider::PROVIDER;
// The library's allocator.
use libdat_allocator as _;
