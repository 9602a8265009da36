//! Every refused call prints one line if `DAT_DBG_TYPE=1`: the call, its handle,
//! the code, and the cause with the value and what was expected. Each test runs
//! itself again in a process with that variable, and reads what the calls print.

mod arguments;
mod handles;
mod posts;
mod printing;
mod without_handle;

use std::collections::BTreeSet;

use crate::abi::facts::exports;
use crate::face::calls;

#[test]
fn every_exported_call_has_a_row() {
    let exported: BTreeSet<_> = exports().collect();
    let rows: BTreeSet<_> = calls::calls()
        .into_iter()
        .map(|call| call.name)
        .chain(without_handle::NAMES)
        .collect();
    assert_eq!(rows, exported);
}
