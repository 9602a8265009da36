//! How the usual posts of an endpoint, or of a shared queue, reach the queue. Each way is compiled by
//! itself, so that none saves the registers, or asks the questions, of another.

use dat_engine::Endpoint;
use dat_engine::control::DataPath;
use dat_engine::route::{self, Route};

use crate::object::ia::Ia;

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The device's rings; the caller serialises.
    Direct,
    /// libibverbs; the caller serialises.
    Verbs,
    /// Whatever the path is, inside the gate.
    Guarded,
}

impl Way {
    /// That of the endpoints and shared queues of an IA.
    pub(crate) fn of(ia: &Ia) -> Self {
        if ia.is_threadsafe() {
            Self::Guarded
        } else if ia.device().info().path == DataPath::Direct {
            Self::Direct
        } else {
            Self::Verbs
        }
    }

    /// Whether an endpoint can be posted to in this way.
    pub(crate) fn suits(self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Direct => route::Direct::has(endpoint),
            Self::Verbs => route::Verbs::has(endpoint),
            Self::Guarded => true,
        }
    }
}
