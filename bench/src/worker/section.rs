//! The measured section: one call of a function that is not inlined.
//!
//! callgrind counts inside this function, and writes the counts whenever it
//! returns (see `callgrind.rs`). The time of the same function is measured, so
//! both figures are of the same instructions.

/// The symbol by which callgrind finds the measured section.
pub(super) const MEASURED: &str = "dat_bench_cost_measured";

/// Runs the work. The name is not mangled, so that callgrind finds it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn dat_bench_cost_measured(work: &mut Work<'_>) {
    (work.0)();
    // Prevents a tail call, so that the function returns after the work.
    core::hint::black_box(());
}

struct Work<'a>(&'a mut dyn FnMut());

/// Runs `work` as a section that callgrind counts.
#[inline(always)]
pub(crate) fn measured(work: &mut dyn FnMut()) {
    dat_bench_cost_measured(&mut Work(work));
}
