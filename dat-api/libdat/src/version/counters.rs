//! Counters: an extension that uDAPL does not have.

use dat_api::Subtype;
use dat_api::object::counters::Counters;

use crate::abi::*;
use crate::face::call::{First, own_call};
use crate::face::handles::{ours, refused_any};
use crate::face::output::Out;

/// The counters of an object that has some.
struct Counted(Counters);

impl First for Counted {
    const LABEL: &'static str = "handle";

    fn find(handle: DAT_HANDLE) -> dat_api::Result<Self> {
        let found = ours(handle).and_then(Counters::of).map(Self);
        found.ok_or_else(|| {
            refused_any(
                handle,
                "an IA, EVD, CNO, EP or SRQ",
                Subtype::InvalidHandle1,
            )
        })
    }
}

own_call!(dat_counters_query, control, |found: Counted,
                                        counters: Out<
    DAT_COUNTERS,
>| {
    let place = counters.required(Subtype::InvalidArg2)?;
    let Counters {
        waits,
        refused_posts,
    } = found.0;
    place.set(DAT_COUNTERS {
        spins: waits.spins,
        hits: waits.hits,
        blocks: waits.blocks,
        spurious: waits.spurious,
        refused_posts,
        reserved: [0; 3],
    });
    Ok(())
});
