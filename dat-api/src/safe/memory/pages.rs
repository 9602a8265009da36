//! Pages for memory that the library allocates.

use memmap2::{MmapMut, MmapOptions};

use crate::error::{DatError, Result};
use crate::status::{ReturnType, Subtype};

/// The pages that memory is allocated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::safe) enum Pages {
    Normal,
    /// Huge pages of the size that is the system's default.
    Huge,
}

impl Pages {
    /// Maps this many bytes, at least 1; on huge pages rounded up to whole ones.
    pub(super) fn map(self, bytes: usize) -> Result<MmapMut> {
        match self {
            Self::Normal => MmapOptions::new().len(bytes).map_anon().map_err(|error| {
                no_memory(format!(
                    "{bytes} bytes of memory cannot be allocated: {error}"
                ))
            }),
            Self::Huge => on_huge_pages(bytes, huge_page_size()),
        }
    }
}

/// Returns the size of the system's default huge pages, in bytes; `None` if it has none.
fn huge_page_size() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    huge_page_size_in(&text)
}

/// Returns the size that the text of `/proc/meminfo` states.
fn huge_page_size_in(text: &str) -> Option<usize> {
    let mut lines = text.lines();
    let stated = lines.find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kib: usize = stated.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024).filter(|size| size.is_power_of_two())
}

/// Maps at least this many bytes on huge pages of this size.
fn on_huge_pages(bytes: usize, page: Option<usize>) -> Result<MmapMut> {
    let Some(page) = page else {
        return Err(no_memory(
            "this system has no huge pages (no Hugepagesize in /proc/meminfo): use normal pages"
                .to_owned(),
        ));
    };
    let pages = bytes.div_ceil(page);
    // A length that does not fit is refused by the system.
    let length = pages.saturating_mul(page);
    // The system reserves the pages for the mapping now, so none is missing later.
    let mapped = MmapOptions::new().len(length).huge(None).map_anon();
    mapped.map_err(|error| {
        let kib = page / 1024;
        no_memory(format!(
            "{bytes} bytes need {pages} huge pages of {kib} KiB, which cannot be allocated: \
             {error}; reserve more, for example by sysctl -w vm.nr_hugepages={pages} (all programs \
             share them)"
        ))
    })
}

/// The error of memory that cannot be allocated.
fn no_memory(cause: String) -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemory,
        cause,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_huge_pages_is_read_from_meminfo() {
        let text = "HugePages_Total:       0\nHugepagesize:       2048 kB\nHugetlb:  0 kB\n";
        assert_eq!(huge_page_size_in(text), Some(2 << 20));
        for text in [
            "",
            "Hugepagesize: 3 kB",
            "Hugepagesize: 2048",
            "Hugepagesize: x kB",
        ] {
            assert_eq!(huge_page_size_in(text), None, "{text}");
        }
    }

    #[test]
    fn refused_huge_pages_have_a_cause_and_a_remedy() {
        let error = on_huge_pages(1, None).expect_err("none");
        assert!(error.cause().contains("no huge pages"), "{error}");
        // More than any system has.
        for bytes in [1 << 60, usize::MAX] {
            let error = on_huge_pages(bytes, Some(2 << 20)).expect_err("too many");
            assert!(error.code().is(ReturnType::InsufficientResources));
            assert!(error.cause().contains("vm.nr_hugepages="), "{error}");
        }
    }
}
