//! Runs the C and C++ compilers on sources that consist of assertions.

use crate::abi::version;
use crate::tool::is_installed;
use core::ffi::{c_int, c_void};
use dat::abi::{DAT_HANDLE, DAT_PROVIDER};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the compilers of C that are installed; prints which are not.
pub(crate) fn c() -> impl Iterator<Item = &'static str> {
    ["gcc", "clang"].into_iter().filter(|it| is_installed(it))
}

/// Returns the compilers of C++ that are installed; prints which are not.
pub(crate) fn cxx() -> impl Iterator<Item = &'static str> {
    ["g++", "clang++"].into_iter().filter(|it| is_installed(it))
}

fn is_cxx(compiler: &str) -> bool {
    compiler.ends_with("++")
}

/// Returns the include directory of programs.
pub(crate) fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// Compiles `source` with `flags`; fails with the compiler's message.
///
/// `result` is the shared object to create. Without it, nothing is written.
pub(crate) fn compile(compiler: &str, flags: &[&str], source: &str, result: Option<&Path>) {
    let language = if is_cxx(compiler) { "c++" } else { "c" };
    let mut command = Command::new(compiler);
    command.args(flags).arg("-I").arg(include());
    match result {
        Some(path) => command.args(["-shared", "-fPIC", "-o"]).arg(path),
        None => command.arg("-fsyntax-only"),
    };
    let mut child = command
        .args(["-x", language, "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|cause| panic!("{compiler} cannot be run: {cause}"));
    // A compiler that gives up early closes the pipe; its message is printed
    // below.
    let _ = child
        .stdin
        .take()
        .expect("it was asked for")
        .write_all(source.as_bytes());
    let output = child
        .wait_with_output()
        .expect("the child process was started");
    assert!(
        output.status.success(),
        "{compiler} {}:\n{}",
        flags.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A C or C++ source of assertions about the headers.
pub(crate) struct Assertions {
    source: String,
    count: usize,
}

impl Assertions {
    pub(crate) fn new() -> Self {
        let include = |header| format!("#include <{header}>\n");
        let mut source = version::HEADERS.map(include).concat();
        source.push_str("#ifdef __cplusplus\n#define _Static_assert static_assert\n");
        source.push_str("#define _Alignof alignof\nextern \"C\" {\n#endif\n");
        Self { source, count: 0 }
    }

    /// Adds a line that compiles if its assertion is true.
    pub(crate) fn line(&mut self, line: &str) {
        self.source.push_str(line);
        self.source.push('\n');
        self.count += 1;
    }

    /// Asserts that a constant expression is true.
    pub(crate) fn holds(&mut self, expression: &str) {
        let text = expression.replace('"', "'");
        self.line(&format!("_Static_assert({expression}, \"{text}\");"));
    }

    /// Asserts the integer value of a name.
    pub(crate) fn value(&mut self, name: &str, value: i128) {
        let value = i64::try_from(value).expect("all values fit 64 bits with a sign");
        self.holds(&format!("(long long)({name}) == {value}LL"));
    }

    /// Compiles the collected assertions.
    pub(crate) fn check(mut self, compiler: &str, at_least: usize) {
        assert!(self.count >= at_least, "only {} assertions", self.count);
        self.source.push_str("#ifdef __cplusplus\n}\n#endif\n");
        let (standard, all) = match (is_cxx(compiler), compiler.starts_with("clang")) {
            (true, true) => ("c++17", "-ferror-limit=0"),
            (true, false) => ("c++17", "-fmax-errors=0"),
            (false, true) => ("gnu11", "-ferror-limit=0"),
            (false, false) => ("gnu11", "-fmax-errors=0"),
        };
        let standard = format!("-std={standard}");
        compile(compiler, &[&standard, all], &self.source, None);
    }
}

/// Builds C source as a library, loads it, and calls its function `calls_by_value` with an
/// object whose first word points to a table. Returns the function's result.
pub(crate) fn call_from_c(compiler: &str, source: &str, table: &DAT_PROVIDER) -> c_int {
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{compiler}.so", version::FOLDER));
    let flags = [
        "-std=c99",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
    ];
    compile(compiler, &flags, source, Some(&path));
    let path = std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).expect("a path");
    // SAFETY: the library has no constructors.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{compiler}: the library is not loaded");
    // SAFETY: an open library, and a C string.
    let function = unsafe { libc::dlsym(library, c"calls_by_value".as_ptr()) };
    assert!(!function.is_null(), "{compiler}: the function is not there");
    // SAFETY: the source defines the function with this type.
    let function: unsafe extern "C" fn(DAT_HANDLE) -> c_int =
        unsafe { core::mem::transmute::<*mut c_void, _>(function) };
    let mut object: *const DAT_PROVIDER = table;
    // SAFETY: the object's first word points to the table, and both outlive the
    // call.
    unsafe { function((&raw mut object).cast()) }
}
