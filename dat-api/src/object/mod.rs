//! The objects of DAT. They know no ABI: the C faces convert and call here.

pub(crate) mod usage;
