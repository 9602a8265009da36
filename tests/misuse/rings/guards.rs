//! Threads share the guard of a lock only if they may share its value.

use core::cell::Cell;
use mlx5_rings::sync::SpinGuard;

fn shared<T: Sync>() {}

fn main() {
    shared::<SpinGuard<'_, u64>>();
    shared::<SpinGuard<'_, Cell<u64>>>();
}
