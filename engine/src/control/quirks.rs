//! Devices that deviate from the verbs specification. The workarounds are in
//! `path/verbs/quirks.rs`.

/// The vendor id that siw reports (`SIW_VENDOR_ID` in Linux,
/// drivers/infiniband/sw/siw/siw.h).
const SIW: u32 = 0x62_6d74;

/// The kinds of devices with quirks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quirks {
    /// The device follows the verbs specification.
    #[default]
    None,
    /// siw, Linux's software iWARP device.
    Siw,
}

impl Quirks {
    /// Returns the quirks of a vendor's devices.
    pub(crate) fn of(vendor: u32) -> Self {
        match vendor {
            SIW => Self::Siw,
            _ => Self::None,
        }
    }

    /// Returns whether the engine makes completions itself, so that completion
    /// channels need a [`super::software_event::SoftwareEvent`].
    pub(super) fn has_software_events(self) -> bool {
        self == Self::Siw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siw_is_recognised_by_its_vendor_id() {
        assert_eq!(Quirks::of(0x62_6d74), Quirks::Siw);
        assert_eq!(Quirks::of(0x15b3), Quirks::None);
        assert!(Quirks::Siw.has_software_events() && !Quirks::None.has_software_events());
    }
}
