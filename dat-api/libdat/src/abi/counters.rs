//! What only this provider has: counters.

use super::types::DAT_UINT64;

/// What `dat_counters_query` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DAT_COUNTERS {
    pub spins: DAT_UINT64,
    pub hits: DAT_UINT64,
    pub blocks: DAT_UINT64,
    pub spurious: DAT_UINT64,
    pub refused_posts: DAT_UINT64,
    pub reserved: [DAT_UINT64; 3],
}
