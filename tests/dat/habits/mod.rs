//! What programs rely on that were written against the reference implementation,
//! where the DAT pages say otherwise or nothing. Each test is named for the habit;
//! its twin shows what a strict adapter (`DAT_STRICT=1`) does.
//!
//! Decision: `docs/decisions/061-allow-what-the-reference-allows.md`

mod attributes;
mod cno;
mod codes;
mod early;
mod memory;
mod opens;
mod order;
mod query;
mod rdma;
mod registry;
mod sharing;
