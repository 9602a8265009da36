//! Counters: an extension that uDAPL does not have.
#![allow(missing_docs, reason = "the headers explain each call")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all, in the documentation of `exports`"
)]

use dat_api::Subtype;
use dat_api::object::counters::Counters;

use crate::abi::{DAT_COUNTERS, DAT_HANDLE, DAT_RETURN};
use crate::face::frame::control;
use crate::face::handles::{ours, refused_any};
use crate::face::output::Output;
use crate::face::subject::on;

#[unsafe(export_name = symbol!("dat_counters_query"))]
pub unsafe extern "C" fn dat_counters_query(
    dat_handle: DAT_HANDLE,
    counters: *mut DAT_COUNTERS,
) -> DAT_RETURN {
    control("dat_counters_query", on("handle", dat_handle), || {
        let found = ours(dat_handle).and_then(Counters::of).ok_or_else(|| {
            refused_any(
                dat_handle,
                "an IA, EVD, CNO, EP or SRQ",
                Subtype::InvalidHandle1,
            )
        })?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(counters, Subtype::InvalidArg2) }?;
        place.set(DAT_COUNTERS {
            spins: found.waits.spins,
            hits: found.waits.hits,
            blocks: found.waits.blocks,
            spurious: found.waits.spurious,
            refused_posts: found.refused_posts,
            reserved: [0; 3],
        });
        Ok(())
    })
}
