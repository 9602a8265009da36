//! Programs that would use memory, or a queue, that belongs to another owner or is gone: none of
//! them compiles. Each file says why, and the compiler's message is in the file beside it.
//!
//! A package of its own, because trybuild builds its package's dependencies once more:
//!
//! ```text
//! cargo test -p misuse --test misuse
//! ```

#[test]
fn unsound_programs_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("dat_api/*.rs");
    cases.compile_fail("engine/*.rs");
    cases.compile_fail("rings/*.rs");
}
