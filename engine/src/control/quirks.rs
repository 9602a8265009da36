//! Devices that do otherwise than verbs have it. What is done about that is for
//! the verbs path.

/// The vendor's number that siw gives (`SIW_VENDOR_ID` in Linux,
/// drivers/infiniband/sw/siw/siw.h).
const SIW: u32 = 0x62_6d74;

/// What a device does otherwise than others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quirks {
    /// It keeps to what verbs say.
    #[default]
    None,
    /// It is siw, Linux's iWARP device in software.
    Siw,
}

impl Quirks {
    /// Those of a vendor's devices.
    pub(crate) fn of(vendor: u32) -> Self {
        match vendor {
            SIW => Self::Siw,
            _ => Self::None,
        }
    }

    /// Whether completions are made in the library, so that completion channels
    /// need a [`super::bell::Bell`].
    pub(super) fn has_bell(self) -> bool {
        self == Self::Siw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siw_is_known_by_its_vendor() {
        assert_eq!(Quirks::of(0x62_6d74), Quirks::Siw);
        assert_eq!(Quirks::of(0x15b3), Quirks::None);
        assert!(Quirks::Siw.has_bell() && !Quirks::None.has_bell());
    }
}
