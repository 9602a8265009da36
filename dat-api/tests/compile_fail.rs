//! Programs that would use memory, or a queue, that belongs to another owner or is gone: none of
//! them compiles. Each file says why, and the compiler's message is in the file beside it. The
//! programs of the engine and of the rings run here too, so that there is one build for all.

#![cfg(not(loom))]

#[test]
fn unsound_programs_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
    cases.compile_fail("../engine/tests/compile_fail/*.rs");
    cases.compile_fail("../engine/ring/tests/compile_fail/*.rs");
}
