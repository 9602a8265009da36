//! Facts about this host that a reader needs to judge a figure; pinning.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;

/// The host of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// CPU model, as in /proc/cpuinfo.
    pub(crate) cpu: String,
    /// Number of CPUs that this process may run on.
    pub(crate) cpus: usize,
    pub(crate) virtual_machine: bool,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Frequency governors in use; none if sysfs does not show them.
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

    /// Returns the CPU model, and whether it is virtual.
    pub(crate) fn processor(&self) -> String {
        match self.virtual_machine {
            true => format!("{} in a virtual machine", self.cpu),
            false => self.cpu.clone(),
        }
    }
}

/// Returns the 'model name' of x86, or the implementer and part numbers of Arm.
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

/// Returns the distinct governors of all CPUs, joined; none if sysfs has none.
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

/// Returns the kernel's estimate of the bytes that can be allocated without
/// swapping, if it has one.
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

/// Returns what the kernel has counted of the calling thread; no counter is negative.
pub(crate) fn thread_usage() -> libc::rusage {
    // SAFETY: all fields are integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `usage` is a local variable that is written; every Linux has RUSAGE_THREAD.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage
}

/// Pins the calling thread only; threads that libraries started stay unpinned.
pub(crate) fn pin(cpu: usize) -> Result<(), Failure> {
    let allowed = core_affinity::get_core_ids().unwrap_or_default();
    let Some(&core) = allowed.iter().find(|core| core.id == cpu) else {
        let list: Vec<_> = allowed.iter().map(|core| core.id.to_string()).collect();
        return Err(Failure::usage(format!(
            "this process may not run on CPU {cpu}: give --cpu one of {}",
            list.join(", ")
        )));
    };
    set_affinity(core)
}

/// Pins the calling thread without checking that the CPU is allowed. For a
/// thread that inherited the pinning of its parent, which hides other CPUs.
pub(crate) fn pin_unchecked(cpu: usize) -> Result<(), Failure> {
    set_affinity(core_affinity::CoreId { id: cpu })
}

fn set_affinity(core: core_affinity::CoreId) -> Result<(), Failure> {
    if core_affinity::set_for_current(core) {
        Ok(())
    } else {
        Err(Failure::environment(format!(
            "the kernel refused to pin the thread to CPU {}; is the CPU online, and in this cgroup's cpuset?",
            core.id
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_model_is_read_on_x86_and_arm() {
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
    fn a_hypervisor_is_detected_by_the_cpu_flags_only() {
        assert!(has_flag("flags\t\t: fpu hypervisor lahf_lm", "hypervisor"));
        assert!(!has_flag(
            "model name\t: hypervisor\nflags\t: fpu",
            "hypervisor"
        ));
    }

    #[test]
    fn pinning_to_an_absent_cpu_is_a_usage_failure() {
        let failure = pin(1 << 20).unwrap_err();
        assert_eq!(failure.status(), 1);
    }
}
