//! The type of each kind of objects.

use core::fmt;

use crate::handle::{Kind, Object, Upcalls};

/// Implements [`Object`] for the type of each kind, and formats it by its handle; each kind appears
/// once.
macro_rules! objects {
    ($($type:ty => $kind:ident,)*) => {
        $(
            // SAFETY: no other line has the kind, which the match below checks.
            unsafe impl Object for $type {
                const KIND: Kind = Kind::$kind;
                const UPCALLS: &'static Upcalls = &<$type>::UPCALLS;
            }

            impl fmt::Debug for $type {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_tuple(stringify!($kind)).field(&self.handle()).finish()
                }
            }
        )*

        // A kind with two lines makes an unreachable arm; a kind without a line makes the match
        // incomplete.
        #[deny(unreachable_patterns)]
        const _: fn(Kind) = |kind| match kind {
            $(Kind::$kind => {})*
        };
    };
}

objects! {
    super::psp::Psp => Psp,
    super::rsp::Rsp => Rsp,
    super::cr::Cr => Cr,
    super::rmr::Rmr => Rmr,
    super::ep::Ep => Ep,
    super::srq::Srq => Srq,
    super::cno::Cno => Cno,
    super::evd::Evd => Evd,
    super::lmr::Lmr => Lmr,
    super::pz::Pz => Pz,
    super::ia::Ia => Ia,
}
