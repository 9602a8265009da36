//! Facts about this machine that decide what a figure is worth.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;

/// What is known of the machine a run was made on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Host {
    /// Host name.
    pub(crate) name: String,
    /// CPU model as the kernel names it.
    pub(crate) cpu: String,
    /// CPUs this process may run on.
    pub(crate) cpus: usize,
    /// Whether a hypervisor is below.
    pub(crate) virtual_machine: bool,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Frequency governors in use, if the machine shows them.
    pub(crate) governor: Option<String>,
    /// Machine architecture.
    pub(crate) architecture: &'static str,
}

impl Host {
    pub(crate) fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let sys = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
        Self {
            name: sys("/proc/sys/kernel/hostname").unwrap_or_else(|_| "unknown".into()),
            cpu: cpu_model(&cpuinfo),
            cpus: core_affinity::get_core_ids().map_or(0, |cores| cores.len()),
            virtual_machine: has_flag(&cpuinfo, "hypervisor"),
            kernel: sys("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".into()),
            governor: governors(Path::new("/sys/devices/system/cpu")),
            architecture: std::env::consts::ARCH,
        }
    }
}

/// x86 has a 'model name'; Arm only numbers, which are better than nothing.
fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    field("model name")
        .or_else(|| {
            Some(format!(
                "implementer {} part {}",
                field("CPU implementer")?,
                field("CPU part")?
            ))
        })
        .unwrap_or_else(|| "unknown".into())
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .any(|(key, value)| key.trim() == "flags" && value.split_whitespace().any(|f| f == flag))
}

/// The distinct governors of all CPUs, joined; none if the machine hides them.
fn governors(cpus: &Path) -> Option<String> {
    let mut names: Vec<String> = fs::read_dir(cpus)
        .ok()?
        .flatten()
        .filter_map(|cpu| fs::read_to_string(cpu.path().join("cpufreq/scaling_governor")).ok())
        .map(|name| name.trim().to_owned())
        .collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Bytes that can be allocated without swapping, as the kernel estimates; none
/// if it does not say.
pub(crate) fn available_memory() -> Option<u64> {
    available_of(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_of(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// Pins the calling thread, and no other: threads that libraries started keep
/// their places.
pub(crate) fn pin(cpu: usize) -> Result<(), Failure> {
    let allowed = core_affinity::get_core_ids().unwrap_or_default();
    let Some(&core) = allowed.iter().find(|core| core.id == cpu) else {
        let list: Vec<_> = allowed.iter().map(|core| core.id.to_string()).collect();
        return Err(Failure::usage(format!(
            "this process may not run on CPU {cpu}; choose with --cpu one of {}",
            list.join(", ")
        )));
    };
    move_to(core)
}

/// The same for a thread whose parent is pinned elsewhere: the CPU was one of
/// this process's when it began.
pub(crate) fn pin_beside(cpu: usize) -> Result<(), Failure> {
    move_to(core_affinity::CoreId { id: cpu })
}

fn move_to(core: core_affinity::CoreId) -> Result<(), Failure> {
    if core_affinity::set_for_current(core) {
        Ok(())
    } else {
        Err(Failure::environment(format!(
            "the kernel refused to pin to CPU {}",
            core.id
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_named_on_x86_and_arm() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\n"),
            "AMD EPYC"
        );
        let arm = "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm), "implementer 0x41 part 0xd0c");
        assert_eq!(cpu_model(""), "unknown");
    }

    #[test]
    fn available_memory_is_read_in_bytes() {
        assert_eq!(
            available_of("MemTotal: 9 kB\nMemAvailable:   16 kB\n"),
            Some(16384)
        );
        assert_eq!(available_of(""), None);
    }

    #[test]
    fn a_hypervisor_is_seen_only_among_the_flags() {
        assert!(has_flag("flags\t\t: fpu hypervisor lahf_lm", "hypervisor"));
        assert!(!has_flag(
            "model name\t: hypervisor\nflags\t: fpu",
            "hypervisor"
        ));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_a_usage_failure() {
        let failure = pin(1 << 20).unwrap_err();
        assert_eq!(failure.status(), 1);
    }
}
