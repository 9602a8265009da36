//! dat.conf, of any bytes.
#![no_main]

use dat_api::registry::Conf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let conf = Conf::parse(bytes);
    let lines = bytes.split(|&byte| byte == b'\n').count();
    assert!(conf.entries.len() + conf.ignored.len() + conf.line_errors.len() <= lines);
    for entry in &conf.entries {
        assert!((1..=lines).contains(&entry.line) && !entry.name.is_empty());
        let _ = (entry.is_ours(), entry.unused_platform_data());
    }
    for error in &conf.line_errors {
        // What a terminal shows as it is.
        let obeyed = |it: char| it.is_control() && it != '\t';
        assert!(!error.cause.contains(obeyed), "{error:?}");
    }
});
