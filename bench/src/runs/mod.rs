//! What commands with a client and a server have in common (`lat`, `bw` and `rate`): from the
//! options to the results of all cases. A module names only those below it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `measure` | measures all cases, as the client or with both sides in this process |
//! | `threads` | the threads of `--threads` but the first |
//! | `serve` | the server: clients one after another |
//! | `opened` | options → device → APIs |
//! | `sides` | the connected sides of every API, in one process or two |
//! | `common` | the parameters that all these commands have, cut to the device's limits |
//! | `team` | several measuring threads, which begin each pass together |
//! | `amount` | sizes, rounds and turns of the APIs |

mod amount;
mod common;
mod measure;
mod opened;
mod serve;
mod sides;
mod team;
mod threads;

pub(crate) use amount::Amount;
pub(crate) use common::CommonPlan;
pub(crate) use measure::{Measured, measure};
pub(crate) use opened::{Opened, open};
pub(crate) use serve::{explain, serve};
pub(crate) use sides::{Command, Member, Sides};
pub(crate) use team::Team;
pub(crate) use threads::follow;
